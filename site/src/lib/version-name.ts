// nextName suggests a name for the version after the one with a name. No two versions of a template have the same.
export function nextName(name: string): string {
  const [, stem = "", number = "1"] = /^(.*?)(?:-(\d+))?$/.exec(name) ?? [];
  return stem && `${stem}-${Number(number) + 1}`;
}
