// A number for each day, as bars.

export interface Bar {
  date: string; // when the day began
  amount: number;
}

const day = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });

// Bars draws the numbers. label says what they count; unit words one of them: "3 users".
export function Bars({ of, label, unit }: { of: Bar[]; label: string; unit: (amount: number) => string }) {
  const most = Math.max(0, ...of.map((b) => b.amount));
  const [first, last] = [of[0], of.at(-1)];
  return (
    <figure>
      <svg
        viewBox={`0 0 ${of.length * 10} 60`}
        preserveAspectRatio="none"
        className="h-32 w-full fill-fill"
        role="img"
        aria-label={`${label} by day: at most ${most}`}
      >
        {of.map((b, i) => {
          const height = b.amount === 0 ? 1 : (b.amount / most) * 60;
          return (
            <rect key={b.date} x={i * 10 + 1} width={8} y={60 - height} height={height}>
              <title>{`${new Date(b.date).toLocaleDateString("en")}: ${unit(b.amount)}`}</title>
            </rect>
          );
        })}
      </svg>
      {first && last && (
        <figcaption className="mt-1 flex justify-between gap-2 text-xs text-muted tabular-nums">
          <span>{day.format(new Date(first.date))}</span>
          <span>most: {unit(most)}</span>
          <span>{day.format(new Date(last.date))}</span>
        </figcaption>
      )}
    </figure>
  );
}
