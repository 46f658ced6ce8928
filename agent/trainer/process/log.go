package process

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// attemptLog keeps what a child prints: all of it up to a cap on disk, the last lines in memory. Safe for concurrent use.
type attemptLog struct {
	path string

	mu    sync.Mutex
	f     *os.File // nil when it could not be opened or is closed
	left  int64
	tail  []string
	limit int // lines in tail
}

// openLog begins the log of an attempt and removes the oldest ones beyond MaxLogs.
func openLog(dir, name string, limit int64) (*attemptLog, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	old, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(old, func(a, b os.DirEntry) int { return age(a).Compare(age(b)) })
	for _, e := range old[:max(0, len(old)-MaxLogs+1)] {
		_ = os.Remove(filepath.Join(dir, e.Name())) // the next attempt tries again
	}
	path := filepath.Join(dir, name)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	return &attemptLog{path: path, f: f, left: limit, limit: TailLines}, err
}

// add keeps one line without its line feed.
func (l *attemptLog) add(line []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if text := clean(string(line), MaxTailLine); len(bytes.TrimSpace([]byte(text))) > 0 {
		if len(l.tail) == l.limit {
			l.tail = append(l.tail[:0], l.tail[1:]...)
		}
		l.tail = append(l.tail, text)
	}
	if l.f == nil || l.left <= 0 {
		return
	}
	if l.left -= int64(len(line) + 1); l.left <= 0 {
		line = []byte("[the limit of what an attempt may print is reached; the rest is not kept]")
	}
	// A full disk must not end the training; the tail still tells the end.
	if _, err := l.f.Write(append(bytes.Clone(line), '\n')); err != nil {
		l.left = 0
	}
}

// last gives the kept lines, oldest first.
func (l *attemptLog) last() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.tail)
}

func (l *attemptLog) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f != nil {
		_ = l.f.Close()
		l.f = nil
	}
}

// drain adds all lines of r until it ends; lines beyond MaxLogLine are split.
func (l *attemptLog) drain(r *bufio.Reader) {
	for {
		line, err := r.ReadSlice('\n')
		if len(line) > 0 {
			l.add(bytes.TrimRight(line, "\r\n"))
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

// bounded gives a reader whose lines fit MaxMessage.
func bounded(r io.Reader) *bufio.Reader { return bufio.NewReaderSize(r, MaxMessage) }

// Logs lists the logs of attempts that are kept, oldest first.
func (o *Opener) Logs() []string {
	dir := filepath.Join(o.opts.Root, "logs")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // no attempt yet
	}
	slices.SortStableFunc(entries, func(a, b os.DirEntry) int { return age(a).Compare(age(b)) })
	paths := make([]string, len(entries))
	for i, e := range entries {
		paths[i] = filepath.Join(dir, e.Name())
	}
	return paths
}

// age is when the entry was last written; one that is gone counts as oldest.
func age(e os.DirEntry) time.Time {
	info, err := e.Info()
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}
