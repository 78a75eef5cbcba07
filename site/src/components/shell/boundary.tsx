import { Component, type ReactNode } from "react";
import { Button } from "~/components/ui/button";
import { Empty } from "~/components/ui/empty";
import { Unloaded } from "./unloaded";

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
    if (/dynamically imported module|Importing a module|preload/i.test(error.message)) return <Unloaded />;
    return (
      <Empty
        page
        title="This page crashed"
        action={
          <Button look="primary" onClick={() => location.reload()}>
            Reload
          </Button>
        }
      >
        Reload it, and tell your admin if it happens again: {error.message}
      </Empty>
    );
  }
}
