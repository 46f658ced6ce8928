package cache

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"tensorturn/domain"
	"tensorturn/domain/run"
)

// maxWorkLines bounds the notes of one contribution: twice its chunks (8,192), since a cut has some of them trained again.
const maxWorkLines = 16_384

// Line notes one boundary beside its snapshot, so that the next process of this machine knows what the snapshot holds. A
// line with Chunk nil says that the first Boundary chunks go on under the names of this line.
type Line struct {
	Run      domain.RunID    `json:"run"`
	Epoch    domain.Epoch    `json:"epoch"`
	Round    int             `json:"round"`
	Number   int             `json:"number"` // of the contribution
	Boundary int             `json:"boundary"`
	Chunk    *domain.ChunkID `json:"chunk,omitempty"` // the boundary's newest
	Steps    int             `json:"steps,omitempty"`
	Seconds  float64         `json:"seconds,omitempty"`
	Loss     float64         `json:"loss,omitempty"`
	Sum      string          `json:"sum,omitempty"`   // SHA-256 of the snapshot, hexadecimal
	Size     int64           `json:"size,omitempty"`  // of the snapshot in bytes; 0 in notes of earlier programs
	Check    uint32          `json:"check,omitempty"` // CRC-32C of the line without it
}

// check is what Check must be: a disk that gives other bytes than it was given may leave valid JSON of another chunk.
func (l Line) check() (uint32, error) {
	l.Check = 0
	b, err := json.Marshal(l)
	return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)), err
}

// sound reports whether the line is as it was written and can be of a run.
func (l Line) sound() bool {
	sum, err := l.check()
	chunk := l.Chunk == nil || *l.Chunk >= 0 && *l.Chunk < run.MaxChunks
	return err == nil && sum == l.Check && domain.ValidID(string(l.Run)) && chunk && run.IsLoss(l.Loss) && l.Boundary >= 1 && l.Boundary <= maxWorkLines && l.Round >= 0 && l.Number >= 0
}

// Work is what a slot has trained for one contribution: Lines[i] is of boundary i+1 and names a chunk. The names are those
// of the newest line.
type Work struct {
	Run    domain.RunID
	Epoch  domain.Epoch
	Round  int
	Number int
	Lines  []Line
}

// WorkOf folds the lines of a slot in the order of their writing. A line that does not follow from those before it ends
// what is believed: the rest is as if it had never been written.
func WorkOf(lines []Line) Work {
	var w Work
	for _, l := range lines {
		same := w.Run == l.Run && w.Epoch == l.Epoch && w.Round == l.Round && w.Number == l.Number
		switch {
		case l.Chunk == nil && l.Run == w.Run && l.Boundary >= 1 && l.Boundary <= len(w.Lines):
			w.Epoch, w.Round, w.Number, w.Lines = l.Epoch, l.Round, l.Number, w.Lines[:l.Boundary:l.Boundary]
		case l.Chunk == nil:
			return w
		case l.Boundary == 1:
			w = Work{Run: l.Run, Epoch: l.Epoch, Round: l.Round, Number: l.Number, Lines: []Line{l}}
		case same && l.Boundary > 1 && l.Boundary <= len(w.Lines)+1:
			w.Lines = append(w.Lines[:l.Boundary-1:l.Boundary-1], l)
		default:
			return w
		}
	}
	return w
}

// Note adds a line. It is not synced: a process that is killed leaves what it has written, and after a loss of power the sums
// tell. A contribution's first boundary begins the notes anew.
func (s *Snapshots) Note(l Line) error {
	flags := os.O_WRONLY | os.O_CREATE | os.O_APPEND
	if l.Boundary == 1 && l.Chunk != nil {
		flags, s.lines = os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0
	}
	if s.lines >= maxWorkLines {
		return nil // the next process finds less
	}
	if l.Chunk != nil {
		was, ok := s.sums[l.Boundary]
		domain.Assert(ok, "a boundary is noted after its snapshot was saved")
		l.Sum, l.Size = hex.EncodeToString(was.sum[:]), was.size
	}
	sum, err := l.check()
	if err != nil {
		return domain.Invalid("note a boundary", err.Error(), "")
	}
	l.Check = sum
	b, err := json.Marshal(l)
	if err != nil {
		return domain.Invalid("note a boundary", err.Error(), "")
	}
	f, err := os.OpenFile(s.notes(), flags, 0o600)
	if err != nil {
		return diskError("note a boundary", err)
	}
	_, err = f.Write(append(b, '\n'))
	if err = errors.Join(err, f.Close()); err != nil {
		return diskError("note a boundary", err)
	}
	s.lines++
	return nil
}

// Found is what an earlier process has left of this slot, with the boundaries whose snapshots are there, ascending; ok is
// false when that is nothing. Whether a snapshot has the bytes that were saved shows when it is read.
func (s *Snapshots) Found() (w Work, boundaries []int, ok bool) {
	if info, err := os.Lstat(s.notes()); err != nil || info.Size() == 0 {
		if left, _ := filepath.Glob(filepath.Join(s.dir, "[1-9]*.safetensors")); len(left) > 0 {
			s.cache.opts.Lost(lost(s.notes(), "it is gone; what the snapshots beside it hold is trained again"))
		}
		return Work{}, nil, false
	}
	f, err := os.Open(s.notes())
	if err != nil {
		s.cache.opts.Lost(lost(s.notes(), err.Error()))
		return Work{}, nil, false
	}
	defer func() { _ = f.Close() }()
	var lines []Line
	in := bufio.NewReaderSize(f, 1<<12)
	for len(lines) < maxWorkLines {
		b, err := in.ReadSlice('\n')
		var l Line
		if errors.Is(err, io.EOF) {
			break // at its end, or torn when the process was killed
		}
		if err != nil || json.Unmarshal(bytes.TrimSpace(b), &l) != nil || !l.sound() {
			s.cache.opts.Lost(lost(s.notes(), fmt.Sprintf("line %d is not as it was written; what follows is trained again", len(lines)+1)))
			break
		}
		lines = append(lines, l)
	}
	w = WorkOf(lines)
	for i, l := range w.Lines {
		sum, err := hex.DecodeString(l.Sum)
		if err != nil || len(sum) != sha256.Size {
			continue
		}
		info, err := os.Lstat(s.path(i + 1))
		if err != nil || !info.Mode().IsRegular() {
			if i+1 == len(w.Lines) { // all but the newest are pruned
				s.cache.opts.Lost(lost(s.path(i+1), "it is gone; what it held is trained again"))
			}
			continue
		}
		if l.Size > 0 && info.Size() != l.Size {
			s.cache.opts.Lost(lost(s.path(i+1), "it has another length than was saved"))
			continue
		}
		s.sums[i+1] = saved{[sha256.Size]byte(sum), l.Size}
		boundaries = append(boundaries, i+1)
	}
	s.lines = len(lines)
	return w, boundaries, len(boundaries) > 0
}

func (s *Snapshots) notes() string { return filepath.Join(s.dir, "work.jsonl") }

// clearSlots removes what slots from the first one on have left, which this machine has no more.
func (c *Cache) clearSlots(first int) error {
	if err := c.folder(filepath.Join(c.dir, slotsDir)); err != nil {
		return diskError("clear snapshots", err)
	}
	dirs, err := os.ReadDir(filepath.Join(c.dir, slotsDir))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return diskError("clear snapshots", err)
	}
	for _, d := range dirs {
		if n, err := strconv.Atoi(d.Name()); err == nil && n >= 0 && n < first {
			continue
		}
		if err := os.RemoveAll(filepath.Join(c.dir, slotsDir, d.Name())); err != nil {
			return diskError("clear snapshots", err)
		}
	}
	return nil
}
