// What is known of an SSH key before the server sees it, and where it signs in.
import { sh } from "./shell";

const privateForm =
  /(BEGIN|END) [A-Z0-9 ]*PRIVATE KEY|PuTTY-User-Key-File|Private-Lines:|b3BlbnNzaC1rZXktdjE|AGE-SECRET-KEY/i;

// isPrivateKey recognizes private keys, as the server does (internal/sshkey): they must not leave the browser.
export const isPrivateKey = (text: string) => privateForm.test(text);

// sshCommand returns how to reach a workspace through the SSH gateway at HOST:PORT.
export function sshCommand(address: string): string {
  const colon = address.lastIndexOf(":");
  const host = address.slice(0, colon).replace(/^\[(.*)\]$/, "$1");
  const port = address.slice(colon + 1);
  const to = `WORKSPACE@${host}`;
  return port === "22" ? sh`ssh ${to}` : sh`ssh -p ${port} ${to}`;
}
