// @vitest-environment jsdom
import { QueryClient, QueryClientProvider, useMutation } from "@tanstack/react-query";
import { cleanup, fireEvent, render, screen } from "@testing-library/react";
import type { ReactNode } from "react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { ApiError } from "~/api/client";
import { Confirm } from "./dialog";
import { Form, TextField, useFields } from "./form";

beforeEach(() => {
  HTMLDialogElement.prototype.showModal = function () {
    this.open = true;
  };
});
afterEach(cleanup);

const show = (node: ReactNode) => render(<QueryClientProvider client={new QueryClient()}>{node}</QueryClientProvider>);

const button = (name: string) => screen.getByRole<HTMLButtonElement>("button", { name });

it("sends its fields once, and shows the server's error at the field that it names", async () => {
  const send = vi.fn<(values: object) => Promise<void>>();
  function Account() {
    const { values, field } = useFields({ username: "", name: "" });
    const save = useMutation({ mutationFn: () => send(values) });
    return (
      <Form request={save} submit="Save" done="Saved">
        <TextField label="Username" {...field("username")} />
        <TextField label="Full name" {...field("name")} />
      </Form>
    );
  }
  show(<Account />);
  let refuse: (error: Error) => void = () => {};
  send.mockImplementationOnce(() => new Promise((_, reject) => (refuse = reject)));
  const username = screen.getByLabelText("Username");
  fireEvent.change(username, { target: { value: "ada" } });
  fireEvent.click(button("Save"));
  await vi.waitFor(() => expect(button("Save").disabled).toBe(true));
  expect(send.mock.calls).toEqual([[{ username: "ada", name: "" }]]);

  const fields = [
    { field: "username", detail: "is taken" },
    { field: "plan", detail: "ends today" },
  ];
  refuse(new ApiError(409, "You already have an account named ada.", "", fields));
  await vi.waitFor(() => expect(username.getAttribute("aria-invalid")).toBe("true"));
  const about = document.getElementById(username.getAttribute("aria-describedby")!);
  expect(about?.textContent).toBe("You already have an account named ada.");
  expect(screen.getByLabelText("Full name").getAttribute("aria-invalid")).toBeNull();
  // The note above the buttons says what no field does.
  expect(screen.getByRole("alert").textContent).toBe("You already have an account named ada.plan: ends today");
  expect(screen.queryByText("Saved")).toBeNull();

  send.mockResolvedValueOnce();
  fireEvent.click(button("Save"));
  await screen.findByText("Saved");
  expect(username.getAttribute("aria-invalid")).toBeNull();
});

it("confirms what cannot be undone with the thing's name, and stays open when the server refuses", async () => {
  const remove = vi.fn<() => Promise<void>>();
  const close = vi.fn<() => void>();
  show(
    <Confirm title="Delete dev?" action="Delete" danger typed="dev" onConfirm={remove} onClose={close}>
      This cannot be undone.
    </Confirm>,
  );
  const name = screen.getByLabelText("Type dev to confirm");
  expect(button("Delete").disabled).toBe(true);
  fireEvent.change(name, { target: { value: "de" } });
  expect(button("Delete").disabled).toBe(true);
  fireEvent.change(name, { target: { value: "dev" } });
  remove.mockRejectedValueOnce(new Error("It is in use."));
  fireEvent.click(button("Delete"));
  await screen.findByText("It is in use.");
  expect(close).not.toHaveBeenCalled();
  remove.mockResolvedValueOnce();
  fireEvent.click(button("Delete"));
  await vi.waitFor(() => expect(close).toHaveBeenCalled());
  expect(remove).toHaveBeenCalledTimes(2);
});
