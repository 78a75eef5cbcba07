import { Component, type ReactNode } from "react";
import { Button, Empty } from "./ui";

// Boundary contains a page that throws. Navigating elsewhere resets it.
export class Boundary extends Component<{ children: ReactNode; at?: string }, { error: Error | null }> {
  override state: { error: Error | null } = { error: null };

  static getDerivedStateFromError(error: Error) {
    return { error };
  }

  override componentDidUpdate(before: { at?: string }) {
    if (before.at !== this.props.at && this.state.error) this.setState({ error: null });
  }

  override render() {
    const { error } = this.state;
    if (!error) return this.props.children;
    // After an update of the server, the old page's chunks are gone.
    const outdated = /dynamically imported module|Importing a module|preload/i.test(error.message);
    return (
      <Empty
        title={outdated ? "The server has been updated" : "This page failed"}
        action={
          <Button look="primary" onClick={() => location.reload()}>
            Reload
          </Button>
        }
      >
        {outdated ? "Reload to use the new dashboard." : error.message}
      </Empty>
    );
  }
}
