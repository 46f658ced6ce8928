//go:build linux || darwin

package doctor

import "golang.org/x/sys/unix"

// OpenFiles gives how many files a process may open: the hard limit, since Go raises the soft one to it.
func OpenFiles() (uint64, error) {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return 0, err
	}
	return max(r.Cur, r.Max), nil
}
