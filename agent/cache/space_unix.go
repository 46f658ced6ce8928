//go:build linux || darwin

package cache

import "golang.org/x/sys/unix"

// freeSpace gives the bytes an ordinary user may still write to the disk of dir.
func freeSpace(dir string) (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return st.Bavail * uint64(st.Bsize), nil
}
