// The one function of Windows' bcryptprimitives.dll that Go's runtime calls, which Wine 8 lacks: random bytes.
#include <windows.h>

BOOLEAN NTAPI SystemFunction036(PVOID buffer, ULONG length); // RtlGenRandom

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T length) { return SystemFunction036(data, length); }
