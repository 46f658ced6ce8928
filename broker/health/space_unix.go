//go:build linux || darwin

package health

import "golang.org/x/sys/unix"

// DiskSpace gives the bytes that an ordinary user may still write to the disk of dir, and its size.
func DiskSpace(dir string) (free, total int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, err
	}
	return int64(st.Bavail) * int64(st.Bsize), int64(st.Blocks) * int64(st.Bsize), nil
}
