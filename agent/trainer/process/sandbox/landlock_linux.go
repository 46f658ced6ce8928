package sandbox

import (
	"fmt"
	"os"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Rights of Landlock (linux/landlock.h) by what they are for.
const (
	rightsRead  = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	rightsWrite = rightsRead | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO |
		unix.LANDLOCK_ACCESS_FS_MAKE_SYM | unix.LANDLOCK_ACCESS_FS_REFER | unix.LANDLOCK_ACCESS_FS_TRUNCATE
	rightsOfFile = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE |
		unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	rightsDevice  = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	rightsThreads = rightsRead | unix.LANDLOCK_ACCESS_FS_WRITE_FILE // of /proc/self: CUDA writes the names of its threads there
	rightUnix     = unix.LANDLOCK_ACCESS_FS_RESOLVE_UNIX            // connect to a named Unix socket, from the ninth version on
)

// landlockVersion is the version that the kernel speaks, 0 when it has none.
func landlockVersion() int {
	v, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(v)
}

// handled gives everything that a version can restrict: what is not granted is refused.
func handled(version int, network bool) unix.LandlockRulesetAttr {
	a := unix.LandlockRulesetAttr{Handled_access_fs: 1<<13 - 1}
	for v, more := range map[int]uint64{2: unix.LANDLOCK_ACCESS_FS_REFER, 3: unix.LANDLOCK_ACCESS_FS_TRUNCATE, 5: unix.LANDLOCK_ACCESS_FS_IOCTL_DEV, 9: rightUnix} {
		if version >= v {
			a.Handled_access_fs |= more
		}
	}
	if version >= 4 && !network {
		a.Handled_access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	}
	if version >= 6 {
		a.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
	}
	return a
}

// landlock restricts the calling thread for ever, with everything it becomes and starts. No new privileges must be set.
func landlock(p Policy) error {
	attr := handled(landlockVersion(), p.Network)
	set, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return fmt.Errorf("landlock is not usable: %w", errno)
	}
	defer unix.Close(int(set))
	grant := func(rights uint64, paths ...string) error {
		for _, path := range paths {
			if err := allow(int(set), path, rights&attr.Handled_access_fs); err != nil {
				return fmt.Errorf("landlock: %s: %w", path, err)
			}
		}
		return nil
	}
	for _, err := range []error{
		grant(rightsRead, p.Read...), grant(rightsRead, "/proc"), grant(rightsWrite|rightUnix, p.Write...), grant(rightsWrite, "/dev/shm"),
		grant(rightsDevice, p.Devices...), grant(rightsThreads, "/proc/"+strconv.Itoa(os.Getpid())), grant(unix.LANDLOCK_ACCESS_FS_READ_DIR, "/dev"),
	} {
		if err != nil {
			return err
		}
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, set, 0, 0); errno != 0 {
		return fmt.Errorf("landlock refuses: %w", errno)
	}
	return nil
}

// allow grants rights below a path; one that does not exist is left out.
func allow(set int, path string, rights uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT || err == unix.EACCES {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= rightsOfFile
	}
	if rights == 0 {
		return nil
	}
	at := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(fd)}
	if _, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(set), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&at)), 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}
