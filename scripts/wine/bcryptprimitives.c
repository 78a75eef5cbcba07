// What Go's runtime needs and Wine 8 lacks. Go loads bcryptprimitives.dll when a program starts.
#include <winsock2.h>
#include <windows.h>

BOOLEAN NTAPI SystemFunction036(PVOID buffer, ULONG length); // RtlGenRandom

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T length) { return SystemFunction036(data, length); }

// Go opens no UDP socket unless the option SIO_UDP_NETRESET can be switched off: errors that routers report would end reads. Wine has no such errors,
// and refuses the option, so WSAIoctl accepts it here. WINE_WITHOUT_UDP leaves WSAIoctl alone: no program of Go's can then open UDP sockets.
#define NETRESET _WSAIOW(IOC_VENDOR, 15)

static typeof(WSAIoctl) *system_ioctl;

static int WSAAPI ioctl(SOCKET s, DWORD code, void *in, DWORD in_size, void *out, DWORD out_size, DWORD *n, OVERLAPPED *o,
	LPWSAOVERLAPPED_COMPLETION_ROUTINE done) {
	if (code != NETRESET)
		return system_ioctl(s, code, in, in_size, out, out_size, n, o, done);
	*n = 0;
	return 0;
}

// Lets GetProcAddress find ioctl as a library's WSAIoctl. The table of exports holds 32-bit distances from the library, so a jump must be near it.
static BOOL replace(BYTE *library) {
	IMAGE_NT_HEADERS *headers = (void *)(library + ((IMAGE_DOS_HEADER *)library)->e_lfanew);
	IMAGE_EXPORT_DIRECTORY *exports =
		(void *)(library + headers->OptionalHeader.DataDirectory[IMAGE_DIRECTORY_ENTRY_EXPORT].VirtualAddress);
	DWORD *names = (void *)(library + exports->AddressOfNames), *functions = (void *)(library + exports->AddressOfFunctions);
	WORD *ordinals = (void *)(library + exports->AddressOfNameOrdinals);
	BYTE *jump = NULL, *place = library;
	DWORD i = 0, old;

	while (i < exports->NumberOfNames && strcmp((char *)library + names[i], "WSAIoctl"))
		i++;
	if (i == exports->NumberOfNames)
		return FALSE;
	while (!jump && (place += 1 << 20) < library + (1u << 31))
		jump = VirtualAlloc(place, 4096, MEM_COMMIT | MEM_RESERVE, PAGE_EXECUTE_READWRITE);
	DWORD *function = &functions[ordinals[i]];
	if (!jump || !VirtualProtect(function, sizeof *function, PAGE_READWRITE, &old))
		return FALSE;
	system_ioctl = (void *)(library + *function);
	memcpy(jump, "\x48\xb8", 2); // mov rax, ioctl
	*(void **)(jump + 2) = ioctl;
	memcpy(jump + 10, "\xff\xe0", 2); // jmp rax
	*function = jump - library;
	return TRUE;
}

BOOL WINAPI DllMain(HINSTANCE self, DWORD reason, void *reserved) {
	(void)self, (void)reserved;
	return reason != DLL_PROCESS_ATTACH || GetEnvironmentVariableW(L"WINE_WITHOUT_UDP", NULL, 0) ||
		replace((BYTE *)LoadLibraryW(L"ws2_32.dll"));
}
