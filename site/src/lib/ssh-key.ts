// What is known of an SSH key before the server sees it.

const privateForm =
  /(BEGIN|END) [A-Z0-9 ]*PRIVATE KEY|PuTTY-User-Key-File|Private-Lines:|b3BlbnNzaC1rZXktdjE|AGE-SECRET-KEY/i;

// isPrivateKey recognizes private keys, as the server does (internal/sshkey): they must not leave the browser.
export const isPrivateKey = (text: string) => privateForm.test(text);
