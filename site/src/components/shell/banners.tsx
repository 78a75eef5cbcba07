// The announcements of the deployment, above its pages. A message is text: nothing in it is interpreted.
import type { Banner } from "~/api/types";

// ink returns the color of text that can be read on a background (WCAG's relative luminance).
function ink(background: string): string {
  const channel = (from: number) => {
    const c = parseInt(background.slice(from, from + 2), 16) / 255;
    return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  };
  return 0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5) > 0.179 ? "#000000" : "#ffffff";
}

export default function Banners({ of }: { of: Banner[] }) {
  return of.map(({ message, background_color: background = "#4353c9" }, i) => (
    <div
      key={i}
      role="region"
      aria-label="Announcement"
      className="px-4 py-1.5 text-center text-[13px] break-words"
      style={{ background, color: ink(background) }}
    >
      {message}
    </div>
  ));
}
