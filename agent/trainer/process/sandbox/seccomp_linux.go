package sandbox

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// refusedCalls are what a trainer has no business with: doors into other processes and the kernel, and io_uring, which
// opens sockets behind a filter's back.
var refusedCalls = [...]uint32{
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PIDFD_GETFD, unix.SYS_KCMP,
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE, unix.SYS_FSOPEN, unix.SYS_FSMOUNT, unix.SYS_MOUNT_SETATTR,
	unix.SYS_SETNS, unix.SYS_UNSHARE, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD,
	unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_REBOOT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_ACCT,
}

// Offsets in struct seccomp_data. Of the first argument the low half, which lies first on the machines we build for: the
// kernel takes a socket's domain as 32 bits too.
const (
	atCall, atArch, atArg0 = 0, 4, 16
	x32Bit                 = 0x40000000 // amd64's third set of numbers for the same calls
)

// auditArch is the number of the architecture in seccomp_data.
func auditArch() (uint32, bool) {
	switch runtime.GOARCH {
	case "amd64":
		return unix.AUDIT_ARCH_X86_64, true
	case "arm64":
		return unix.AUDIT_ARCH_AARCH64, true
	}
	return 0, false
}

// filterFor gives the program that judges each system call. Without network the only sockets are Unix sockets. Calls of another
// architecture kill the process: they would have other numbers.
func filterFor(arch uint32, network bool) []unix.SockFilter {
	stmt := func(code uint16, k uint32) unix.SockFilter { return unix.SockFilter{Code: code, K: k} }
	jump := func(code uint16, k uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: code, Jt: yes, Jf: no, K: k}
	}
	const load, equal, atLeast, ret = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	refuse := stmt(ret, unix.SECCOMP_RET_ERRNO|uint32(unix.EPERM))
	f := []unix.SockFilter{
		stmt(load, atArch), jump(equal, arch, 1, 0), stmt(ret, unix.SECCOMP_RET_KILL_PROCESS),
		stmt(load, atCall),
	}
	if arch == unix.AUDIT_ARCH_X86_64 {
		f = append(f, jump(atLeast, x32Bit, 0, 1), stmt(ret, unix.SECCOMP_RET_ERRNO|uint32(unix.ENOSYS)))
	}
	for _, call := range refusedCalls {
		f = append(f, jump(equal, call, 0, 1), refuse)
	}
	if !network {
		f = append(f, jump(equal, unix.SYS_SOCKET, 0, 4), // another call: to the end
			stmt(load, atArg0), jump(equal, unix.AF_UNIX, 0, 1), stmt(ret, unix.SECCOMP_RET_ALLOW), refuse)
	}
	return append(f, stmt(ret, unix.SECCOMP_RET_ALLOW))
}

// seccomp puts the filter on the calling thread, with everything it becomes and starts.
func seccomp(network bool) error {
	arch, ok := auditArch()
	if !ok {
		return fmt.Errorf("no filter of system calls is known for %s", runtime.GOARCH)
	}
	f := filterFor(arch, network)
	prog := unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog))); errno != 0 {
		return fmt.Errorf("the filter of system calls is refused: %w", errno)
	}
	return nil
}
