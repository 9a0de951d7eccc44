/*
 * Lets User-Mode Linux run on processors with AMX. Loaded into it with LD_PRELOAD.
 *
 * It saves and restores a process's extended registers in a buffer that is big enough up to AVX-512 and PKRU. The host's
 * kernel takes back whole states only, so on a processor with more it refuses (EFAULT), and the guest panics at its first
 * process. Here, what the buffer lacks is added in its initial state: nothing in the guest may use it.
 */
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PEEKTEXT = 1, PEEKUSER = 3, GETREGSET = 0x4204, SETREGSET = 0x4205, X86_XSTATE = 0x202 };
enum { XSTATE_BV = 512, CARRIED_BYTES = 2696 };
static const unsigned long CARRIED = 0x3ff; /* x87, SSE, AVX, MPX, AVX-512, PT, PKRU: what CARRIED_BYTES have */

long ptrace(int request, ...)
{
	static __thread unsigned char whole[65536];
	va_list list;
	va_start(list, request);
	long pid = va_arg(list, int), address = va_arg(list, long), data = va_arg(list, long);
	va_end(list);

	if (request >= PEEKTEXT && request <= PEEKUSER) {
		long word = 0;
		return syscall(SYS_ptrace, request, pid, address, &word) < 0 ? -1 : word;
	}
	if (request == SETREGSET && address == X86_XSTATE) {
		struct iovec *given = (struct iovec *)data, all = { whole, sizeof whole };
		if (syscall(SYS_ptrace, GETREGSET, pid, address, &all) == 0 && given->iov_len >= CARRIED_BYTES &&
		    all.iov_len > given->iov_len) {
			unsigned long features;
			memcpy(whole, given->iov_base, given->iov_len);
			memcpy(&features, whole + XSTATE_BV, sizeof features);
			features &= CARRIED;
			memcpy(whole + XSTATE_BV, &features, sizeof features);
			return syscall(SYS_ptrace, SETREGSET, pid, address, &all);
		}
	}
	return syscall(SYS_ptrace, request, pid, address, data);
}
