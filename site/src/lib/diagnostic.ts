// The position of an import's error in its template: "main.tf:12: summary: detail", as the provisioner writes it.

export interface Position {
  file: string;
  line: number;
  message: string;
}

export function positionOf(text: string): Position | undefined {
  const match = /(?:^|\s)((?:[\w.@-]+\/)*[\w.@-]+\.tf(?:\.json|vars)?):(\d+):\s*([\s\S]*)$/.exec(text);
  return match ? { file: match[1]!, line: Number(match[2]), message: match[3]!.trim() } : undefined;
}
