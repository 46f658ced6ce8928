package embedded

import (
	"os"
	"path/filepath"

	"github.com/gofrs/flock"

	"tensorturn/domain"
)

// lockFile is the lock's name inside the store directory.
const lockFile = "hub.lock"

// Lock makes dir if it is missing and locks it against a second hub. JetStream has no lock of its own, and two servers
// on one directory destroy it. The kernel gives the lock back when the process ends, however it ends.
func Lock(dir string) (unlock func() error, err error) {
	const op = "lock the hub's directory"
	if dir == "" {
		return nil, domain.Invalid(op, "no directory given", "start with --dir DIR")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, domain.Unavailable(op, dir+" cannot be made", "choose another --dir or fix its owner", err)
	}
	if info, err := os.Lstat(filepath.Join(dir, lockFile)); err == nil && info.IsDir() {
		_ = os.RemoveAll(filepath.Join(dir, lockFile)) // no program of ours has made it, and nobody can hold it
	}
	l := flock.New(filepath.Join(dir, lockFile), flock.SetPermissions(0o600))
	ok, err := l.TryLock()
	if err != nil {
		return nil, domain.Unavailable(op, dir+" cannot be locked", "use a local disk; some network file systems have no locks", err)
	}
	if !ok {
		return nil, domain.Conflict(op, "another hub is running on "+dir, "stop it first, or give this one another --dir")
	}
	return l.Unlock, nil
}
