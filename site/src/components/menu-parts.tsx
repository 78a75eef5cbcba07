// Radix's menu, which is loaded after the first page.
import { DropdownMenu } from "radix-ui";
import { useEffect, useRef } from "react";
import { type OpenedProps, Parts } from "./menu";

// OpenedMenu is open at first. byKeyboard: its first item has the focus.
export default function OpenedMenu({ trigger, children, align, byKeyboard }: OpenedProps) {
  const content = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (byKeyboard) content.current?.querySelector<HTMLElement>("[role=menuitem]:not([data-disabled])")?.focus();
  }, [byKeyboard]);
  return (
    <Parts value={DropdownMenu}>
      <DropdownMenu.Root modal={false} defaultOpen>
        <DropdownMenu.Trigger asChild>{trigger}</DropdownMenu.Trigger>
        <DropdownMenu.Portal>
          <DropdownMenu.Content
            ref={content}
            align={align}
            sideOffset={4}
            collisionPadding={8}
            className="z-50 max-h-[70vh] min-w-44 overflow-y-auto rounded-md border border-line bg-panel p-1 shadow-lg"
          >
            {children}
          </DropdownMenu.Content>
        </DropdownMenu.Portal>
      </DropdownMenu.Root>
    </Parts>
  );
}
