// Prints the size of its console, as `stty size` does: for tests of terminals in Wine, which has no such program.
#include <stdio.h>
#include <windows.h>

int main(void) {
	HANDLE out = CreateFileW(L"CONOUT$", GENERIC_READ | GENERIC_WRITE, FILE_SHARE_READ | FILE_SHARE_WRITE, NULL, OPEN_EXISTING, 0, NULL);
	CONSOLE_SCREEN_BUFFER_INFO info;
	char line[64];
	DWORD n;

	if (!GetConsoleScreenBufferInfo(out, &info))
		return 1;
	n = sprintf(line, "size %d %d\r\n", info.srWindow.Bottom - info.srWindow.Top + 1, info.srWindow.Right - info.srWindow.Left + 1);
	WriteConsoleA(out, line, n, &n, NULL);
	return 0;
}
