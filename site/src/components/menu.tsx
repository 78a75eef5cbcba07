import { Ellipsis } from "lucide-react";
import { DropdownMenu } from "radix-ui";
import type { ReactNode } from "react";
import { useLocation } from "wouter";
import { cx, IconButton } from "./ui";

// Menu opens below its trigger. It does not lock the page, which would need styles that the page's policy forbids.
export function Menu({
  trigger,
  children,
  align = "end",
}: {
  trigger: ReactNode;
  children: ReactNode;
  align?: "start" | "end";
}) {
  return (
    <DropdownMenu.Root modal={false}>
      <DropdownMenu.Trigger asChild>{trigger}</DropdownMenu.Trigger>
      <DropdownMenu.Portal>
        <DropdownMenu.Content
          align={align}
          sideOffset={4}
          collisionPadding={8}
          className="z-50 max-h-[70vh] min-w-44 overflow-y-auto rounded-md border border-line bg-panel p-1 shadow-lg"
        >
          {children}
        </DropdownMenu.Content>
      </DropdownMenu.Portal>
    </DropdownMenu.Root>
  );
}

// MoreMenu holds the less common actions on a thing.
export const MoreMenu = ({ of, children }: { of: string; children: ReactNode }) => (
  <Menu
    trigger={
      <IconButton label={`More for ${of}`}>
        <Ellipsis />
      </IconButton>
    }
  >
    {children}
  </Menu>
);

interface ItemProps {
  children: ReactNode;
  icon?: ReactNode;
  onSelect?: () => void;
  to?: string; // a page of the dashboard
  danger?: boolean;
  disabled?: boolean;
  tall?: boolean; // for more than one line
}

export function Item({ children, icon, onSelect, to, danger, disabled, tall }: ItemProps) {
  const [, navigate] = useLocation();
  return (
    <DropdownMenu.Item
      disabled={disabled ?? false}
      onSelect={() => {
        onSelect?.();
        if (to) navigate(to);
      }}
      className={cx(
        "flex cursor-pointer items-center gap-2 rounded px-2 outline-none select-none",
        tall ? "min-h-8" : "h-8",
        "data-disabled:opacity-50 data-highlighted:bg-raised [&_svg]:size-4 [&_svg]:text-muted",
        danger && "text-bad [&_svg]:text-bad",
      )}
    >
      {icon}
      {children}
    </DropdownMenu.Item>
  );
}

export const MenuLabel = ({ children }: { children: ReactNode }) => (
  <DropdownMenu.Label className="px-2 py-1 text-xs text-muted">{children}</DropdownMenu.Label>
);
export const Separator = () => <DropdownMenu.Separator className="my-1 h-px bg-line" />;
