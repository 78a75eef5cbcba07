// Radix's menu, which is loaded after the first page.
import { DropdownMenu } from "radix-ui";
import { useEffect, useRef } from "react";
import { type OpenedProps, Parts } from "./menu";

// OpenedMenu is open at first. byKeyboard: its first item has the focus.
export default function OpenedMenu({ trigger, children, align, byKeyboard }: OpenedProps) {
  const content = useRef<HTMLDivElement>(null);
  const page = useRef(location.pathname);
  useEffect(() => {
    if (byKeyboard) content.current?.querySelector<HTMLElement>("[role=menuitem]:not([data-disabled])")?.focus();
  }, [byKeyboard]);
  return (
    <Parts value={DropdownMenu}>
      <DropdownMenu.Root modal={false} defaultOpen onOpenChange={() => (page.current = location.pathname)}>
        <DropdownMenu.Trigger asChild>{trigger}</DropdownMenu.Trigger>
        <DropdownMenu.Portal>
          <DropdownMenu.Content
            ref={content}
            align={align}
            // The focus stays on a page to which an item led.
            onCloseAutoFocus={(e) => page.current !== location.pathname && e.preventDefault()}
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
