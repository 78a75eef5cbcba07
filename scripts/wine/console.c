// A shell for tests in Wine: cmd.exe with the console as its standard streams. Windows gives a program those of its pseudo console; Wine 8 does
// not if they are set to nothing. Its arguments are those for cmd.exe.
#include <wchar.h>
#include <windows.h>

static HANDLE open(const WCHAR *name) {
	SECURITY_ATTRIBUTES inherit = {sizeof inherit, NULL, TRUE};
	return CreateFileW(name, GENERIC_READ | GENERIC_WRITE, FILE_SHARE_READ | FILE_SHARE_WRITE, &inherit, OPEN_EXISTING, 0, NULL);
}

int wmain(void) {
	STARTUPINFOW start = {.cb = sizeof start, .dwFlags = STARTF_USESTDHANDLES};
	PROCESS_INFORMATION process;
	WCHAR line[8192] = L"C:\\windows\\system32\\cmd.exe";
	const WCHAR *own = GetCommandLineW();
	BOOL quoted = *own == L'"';
	DWORD code = 127;

	for (own += quoted; *own && *own != (quoted ? L'"' : L' '); own++)
		;
	wcsncat(line, own + (*own && quoted), 8000);
	start.hStdInput = GetStdHandle(STD_INPUT_HANDLE);
	start.hStdOutput = GetStdHandle(STD_OUTPUT_HANDLE);
	start.hStdError = GetStdHandle(STD_ERROR_HANDLE);
	if (!start.hStdInput) {
		start.hStdInput = open(L"CONIN$");
		start.hStdOutput = start.hStdError = open(L"CONOUT$");
	}
	if (CreateProcessW(NULL, line, NULL, NULL, TRUE, 0, NULL, NULL, &start, &process)) {
		WaitForSingleObject(process.hProcess, INFINITE);
		GetExitCodeProcess(process.hProcess, &code);
	}
	return (int)code;
}
