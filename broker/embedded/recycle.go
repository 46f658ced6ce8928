package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/google/renameio/v2"

	"tensorturn/domain"
)

// Broken says why the store takes no more writes, "" while it does. JetStream gives a stream up for good at the first
// write or sync that fails (a full disk, a disk error), and goes on answering reads from what it has in memory: what it
// shows then may not be on the disk.
func (h *Hub) Broken() string { return h.log.broken() }

// Recycle stops the server and starts another one on the same store, port and accounts: the only way to make JetStream
// write again after Broken. Clients of this process come back by themselves, leafnodes dial again. When the new server does not
// come up the error says why, and Recycle may be called again; in between every request fails.
//
// Before the start the newest blocks of every stream are written anew. After a failed sync the kernel may hold pages that
// it believes clean and that are not on the disk (what PostgreSQL calls fsyncgate): reading them back and syncing a copy is
// what makes them durable.
func (h *Hub) Recycle(ctx context.Context) error {
	h.recycling.Lock()
	defer h.recycling.Unlock()
	why := h.Broken()
	stopServer(h.server())
	if why != "" {
		if err := rewriteTails(h.opts.StoreDir); err != nil {
			h.log.stick(why)
			return domain.Unavailable("recycle the store", "its newest blocks cannot be written", "make room on the disk, or look at it", err)
		}
	}
	if err := h.startServer(ctx); err != nil {
		stopServer(h.server())
		h.log.stick(err.Error())
		return fmt.Errorf("recycle the store: %w", err)
	}
	return nil
}

// stick keeps the store broken until a Recycle succeeds.
func (l *logger) stick(why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stuck = domain.Clip(why, maxLogText)
}

// tailBlocks is how many of a stream's newest blocks are written anew: writes go to the newest alone, and the one before
// it may have been left within the same failed append.
const tailBlocks = 2

// rewriteTails replaces the newest blocks of every stream in the store by synced copies of themselves.
func rewriteTails(dir string) error {
	streams, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", "*", "msgs"))
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range streams {
		blocks, err := blocksOf(s)
		if err != nil {
			return err
		}
		for _, b := range blocks[max(0, len(blocks)-tailBlocks):] {
			errs = append(errs, rewrite(b))
		}
	}
	return errors.Join(errs...)
}

// blocksOf lists a stream's blocks, oldest first: <number>.blk.
func blocksOf(dir string) ([]string, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.blk"))
	if err != nil {
		return nil, err
	}
	number := func(path string) int {
		n, _ := strconv.Atoi(strings.TrimSuffix(filepath.Base(path), ".blk"))
		return n
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(number(a), number(b)) })
	return names, nil
}

// rewrite replaces a file by a synced copy of itself, or leaves it alone.
func rewrite(path string) error {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := renameio.NewPendingFile(path, renameio.WithPermissions(info.Mode().Perm()))
	if err != nil {
		return err
	}
	defer out.Cleanup()
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	if err := out.CloseAtomicallyReplace(); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path)) // the new name must be on the disk as well
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}
