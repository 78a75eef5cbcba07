// Has Wine make its desktop, says so, and keeps it: see session.
#include <windows.h>

int main(void) {
	DWORD n;

	if (!GetDesktopWindow())
		return 1;
	WriteFile(GetStdHandle(STD_OUTPUT_HANDLE), "ready\n", 6, &n, NULL);
	Sleep(INFINITE);
	return 0;
}
