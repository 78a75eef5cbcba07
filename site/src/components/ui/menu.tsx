import { Ellipsis } from "lucide-react";
import type { DropdownMenu } from "radix-ui";
import {
  cloneElement,
  createContext,
  type FunctionComponent,
  type MouseEvent,
  type KeyboardEvent,
  type ReactElement,
  type ReactNode,
  use,
  useState,
} from "react";
import { useLocation } from "wouter";
import { toast } from "~/lib/toasts";
import { cx } from "./cx";
import { IconButton } from "./icon-button";

interface MenuProps {
  trigger: ReactElement<TriggerProps>;
  children: ReactNode;
  align?: "start" | "end";
}

interface TriggerProps {
  "aria-haspopup"?: "menu";
  "aria-expanded"?: boolean;
  onClick?: (e: MouseEvent) => void;
  onKeyDown?: (e: KeyboardEvent) => void;
}

export interface OpenedProps extends Required<MenuProps> {
  byKeyboard: boolean;
}

// Parts are what the items of an open menu are made of.
export const Parts = createContext<typeof DropdownMenu | undefined>(undefined);

let Opened: FunctionComponent<OpenedProps> | undefined;

// loadMenus loads what opens menus: a fifth of the first page's code, which that page does not need.
export const loadMenus = () => import("./menu-parts").then((m) => (Opened = m.default));

// Menu opens below its trigger. It does not lock the page, which would need styles that the page's policy forbids.
export function Menu({ trigger, children, align = "end" }: MenuProps) {
  const [opening, setOpening] = useState<"mouse" | "keyboard">();
  if (opening && Opened)
    return (
      <Opened trigger={trigger} align={align} byKeyboard={opening === "keyboard"}>
        {children}
      </Opened>
    );
  const open = (by: "mouse" | "keyboard") =>
    loadMenus().then(
      () => setOpening(by),
      () => toast({ tone: "bad", text: "The menu could not be loaded. Try again, or reload the page." }),
    );
  return cloneElement(trigger, {
    "aria-haspopup": "menu",
    "aria-expanded": false,
    onClick: (e) => void open(e.detail === 0 ? "keyboard" : "mouse"),
    onKeyDown: (e) => {
      if (!["ArrowDown", "Enter", " "].includes(e.key)) return;
      e.preventDefault();
      void open("keyboard");
    },
  });
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
  const { Item } = use(Parts)!;
  return (
    <Item
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
    </Item>
  );
}

export function MenuLabel({ children }: { children: ReactNode }) {
  const { Label } = use(Parts)!;
  return <Label className="px-2 py-1 text-xs text-muted">{children}</Label>;
}

export function Separator() {
  const { Separator } = use(Parts)!;
  return <Separator className="my-1 h-px bg-line" />;
}
