package process

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/redact"
)

// attemptLog keeps what a child prints: on disk the newest part of it, in memory the last lines. The disk holds it in at most two
// segments, each a file named by the position of its first byte, so that a position stays true when the older half goes.
// What looks like a secret is replaced before it is kept anywhere. Safe for concurrent use.
type attemptLog struct {
	dir, unit string
	secrets   *redact.Lines

	mu       sync.Mutex
	f        *os.File // nil when it could not be opened, is closed, or the disk is full
	segments []int64  // first bytes of the files, ascending
	size     int64    // bytes in all, those gone included
	segment  int64    // bytes of a full segment
	tail     []string
	limit    int // lines in tail
}

// openLog begins the log of an attempt and removes the oldest ones beyond MaxLogs. limit is in bytes on disk.
func openLog(dir, unit string, limit int64, secrets *redact.Lines) (*attemptLog, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	kept := listLogs(dir)
	for _, old := range kept[:max(0, len(kept)-MaxLogs+1)] {
		for _, s := range old.segments {
			_ = os.Remove(segmentPath(dir, old.unit, s)) // the next attempt tries again
		}
	}
	l := &attemptLog{dir: dir, unit: unit, secrets: secrets, segment: max(1, limit/2), limit: TailLines}
	return l, l.turn()
}

// turn begins a segment and removes all but the one before.
func (l *attemptLog) turn() error {
	if l.f != nil {
		_ = l.f.Close()
	}
	for len(l.segments) > 1 {
		_ = os.Remove(segmentPath(l.dir, l.unit, l.segments[0]))
		l.segments = l.segments[1:]
	}
	var err error
	l.f, err = os.OpenFile(segmentPath(l.dir, l.unit, l.size), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		l.f = nil
		return err
	}
	l.segments = append(l.segments, l.size)
	return nil
}

func segmentPath(dir, unit string, start int64) string {
	return filepath.Join(dir, fmt.Sprintf("%s.%d.log", unit, start))
}

// path names the newest segment.
func (l *attemptLog) path() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.segments) == 0 {
		return ""
	}
	return segmentPath(l.dir, l.unit, l.segments[len(l.segments)-1])
}

// add keeps one line without its line feed.
func (l *attemptLog) add(line []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	line = l.secrets.Line(line)
	if text := clean(string(line[:min(len(line), 4*MaxTailLine)]), MaxTailLine); len(strings.TrimSpace(text)) > 0 {
		if len(l.tail) == l.limit {
			l.tail = append(l.tail[:0], l.tail[1:]...)
		}
		l.tail = append(l.tail, text)
	}
	if l.f == nil {
		return
	}
	if l.size-l.segments[len(l.segments)-1] >= l.segment && l.turn() != nil {
		return
	}
	// A full disk must not end the training; the tail still tells the end.
	if _, err := l.f.Write(append(bytes.Clone(line), '\n')); err != nil {
		_ = l.f.Close()
		l.f = nil
		return
	}
	l.size += int64(len(line) + 1)
}

// printed is how many bytes were printed.
func (l *attemptLog) printed() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size
}

// recent gives the lines of the newest bytes on disk.
func (l *attemptLog) recent(n int64) []string {
	f, err := os.Open(l.path())
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil
	}
	b, _ := io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-n), n)) // what can be read is enough
	return strings.Split(string(b), "\n")
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

// Log describes what one attempt printed.
type Log struct {
	Run     domain.RunID
	Attempt int
	Member  int   // of an ensemble, -1 in a fused run
	Bytes   int64 // printed so far
	Changed time.Time
	Open    bool // the program still runs

	unit     string
	segments []int64
}

// Logs lists the logs of attempts that are kept, oldest first.
func (o *Opener) Logs() []Log {
	logs := listLogs(filepath.Join(o.opts.Root, "logs"))
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range logs {
		logs[i].Open = o.running[logs[i].unit]
	}
	return logs
}

// listLogs reads a folder of segments. Files of other names are left alone.
func listLogs(dir string) []Log {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // no attempt yet
	}
	found := map[string]*Log{}
	for _, e := range entries {
		unit, start, ok := parseSegment(e.Name())
		info, err := e.Info()
		if !ok || err != nil {
			continue
		}
		l := found[unit]
		if l == nil {
			l = &Log{unit: unit}
			l.Run, l.Attempt, l.Member, ok = parseUnit(unit)
			if !ok {
				continue
			}
			found[unit] = l
		}
		l.segments = append(l.segments, start)
		l.Bytes = max(l.Bytes, start+info.Size())
		if info.ModTime().After(l.Changed) {
			l.Changed = info.ModTime()
		}
	}
	logs := make([]Log, 0, len(found))
	for _, l := range found {
		slices.Sort(l.segments)
		logs = append(logs, *l)
	}
	slices.SortFunc(logs, func(a, b Log) int {
		if c := a.Changed.Compare(b.Changed); c != 0 {
			return c
		}
		return strings.Compare(a.unit, b.unit)
	})
	return logs
}

func parseSegment(name string) (unit string, start int64, ok bool) {
	rest, isLog := strings.CutSuffix(name, ".log")
	dot := strings.LastIndexByte(rest, '.')
	if !isLog || dot < 1 {
		return "", 0, false
	}
	start, err := strconv.ParseInt(rest[dot+1:], 10, 64)
	return rest[:dot], start, err == nil && start >= 0
}

// unitName names one start of a program: run, attempt, member if any, and something nobody can guess.
func unitName(run domain.RunID, attempt, member int) string {
	if member >= 0 {
		return fmt.Sprintf("%s-%dm%d-%s", run, attempt, member, token())
	}
	return fmt.Sprintf("%s-%d-%s", run, attempt, token())
}

// parseUnit is the inverse of unitName.
func parseUnit(unit string) (run domain.RunID, attempt, member int, ok bool) {
	words := strings.Split(unit, "-")
	if len(words) < 3 {
		return "", 0, 0, false
	}
	number, of, isMember := strings.Cut(words[len(words)-2], "m")
	attempt, err := strconv.Atoi(number)
	member = -1
	if isMember && err == nil {
		member, err = strconv.Atoi(of)
	}
	return domain.RunID(strings.Join(words[:len(words)-2], "-")), attempt, member, err == nil && attempt >= 0
}

// ReadLog reads at most n bytes of a log from a position on; a negative position counts from the end. It gives where
// the bytes begin: later than asked when older ones are gone.
func (o *Opener) ReadLog(l Log, from int64, n int) (data []byte, at int64, err error) {
	if from < 0 {
		from = max(0, l.Bytes+from)
	}
	if len(l.segments) == 0 {
		return nil, 0, nil
	}
	from = max(from, l.segments[0])
	at = from
	for i, start := range l.segments {
		if i+1 < len(l.segments) && l.segments[i+1] <= from {
			continue
		}
		part, err := readAt(segmentPath(filepath.Join(o.opts.Root, "logs"), l.unit, start), from-start, n-len(data))
		if err != nil {
			return nil, at, domain.Unavailable("read log", "a part of the log is gone", "ask again", err)
		}
		data, from = append(data, part...), from+int64(len(part))
		if len(data) >= n {
			break
		}
	}
	return data, at, nil
}

// readAt reads what there is of n bytes.
func readAt(path string, at int64, n int) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	b := make([]byte, n)
	got, err := f.ReadAt(b, at)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return b[:got], err
}
