//go:build linux || darwin

package doctor

import "golang.org/x/sys/unix"

// FreeSpace gives the bytes that an ordinary user may still write to the disk of dir.
func FreeSpace(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return int64(st.Bavail) * int64(st.Bsize), nil
}

// OpenFiles gives how many files a process may open: the hard limit, since Go raises the soft one to it.
func OpenFiles() (uint64, error) {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return 0, err
	}
	return max(r.Cur, r.Max), nil
}
