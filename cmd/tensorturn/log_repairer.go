package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/rs/zerolog"

	"tensorturn/broker"
	"tensorturn/broker/gateway"
	"tensorturn/broker/identity"
	"tensorturn/broker/jetstream"
	"tensorturn/broker/repair"
	"tensorturn/domain"
	"tensorturn/projections/archive"
)

// repairer holds what a repair has open.
type repairer struct {
	keys *identity.Keys
	url  string
	tmp  string
	opts repairOptions
	open []*hubProcess

	found []repair.Head // signed positions that came with the sources
	blind string        // why the position kept beside the store proves nothing, "" when it does or there is none
}

func (r *repairer) close() {
	for _, h := range r.open {
		_ = h.stop()
	}
}

// heads reads the position kept beside the store and those of agents. One that this hub's key has not signed says nothing: it is
// refused by name when it was given, and told when it is our own.
func (r *repairer) heads() ([]repair.Head, error) {
	var out []repair.Head
	for i, file := range append([]string{filepath.Join(r.opts.dir, "log.head")}, r.opts.heads...) {
		b, err := readSmall(file, maxHeadFile)
		if errors.Is(err, os.ErrNotExist) && i == 0 {
			continue
		}
		if err != nil && i == 0 {
			r.blind = plainPathError(err)
			continue
		}
		if _, unread := errors.AsType[*fs.PathError](err); unread {
			return nil, domain.Invalid("repair log", plainPathError(err), "a head is the file \"head\" of an agent's folder")
		}
		seq, digest, err := r.keys.Heads().Open(b) // of a file that is too long to be one there is nothing
		if err != nil && i > 0 {
			return nil, domain.Invalid("repair log", file+" is no head that this hub has signed", "take it from the folder of an agent of this hub")
		}
		if err != nil {
			r.blind = file + ": " + err.Error()
			continue
		}
		out = append(out, repair.Head{From: file, Seq: seq, Digest: digest})
	}
	return out, nil
}

// sources opens the hub's own log first, then the copies.
func (r *repairer) sources(ctx context.Context) ([]repair.Source, error) {
	var out []repair.Source
	for i, from := range append([]string{r.opts.dir}, r.opts.from...) {
		info, err := os.Stat(from)
		if err != nil {
			return nil, domain.Invalid("repair log", plainPathError(err), "give a folder of a hub or a file of records")
		}
		var s repair.Source
		if info.IsDir() {
			s, err = r.folder(ctx, from, i)
		} else {
			s, err = r.file(from)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// eventsDir is where a hub's store keeps its log.
func (r *repairer) eventsDir(dir string) string {
	return filepath.Join(dir, "store", "jetstream", r.keys.PublicAccount(identity.RoleHub), "streams", "EVENTS")
}

// folder opens a copy of a hub's log, or of one that a repair has put aside: JetStream changes what it opens.
func (r *repairer) folder(ctx context.Context, dir string, i int) (repair.Source, error) {
	place := filepath.Join(r.tmp, fmt.Sprintf("source-%d", i))
	from := r.eventsDir(dir)
	if aside := filepath.Join(dir, jetstream.EventStream); isFolder(aside) {
		from = aside
	}
	if err := os.CopyFS(r.eventsDir(place), os.DirFS(from)); err != nil {
		return repair.Source{}, domain.Invalid("repair log", "the log in "+dir+" cannot be copied: "+err.Error(), "give a folder of this hub, and room beside the store")
	}
	h, err := r.start(ctx, place)
	if err != nil {
		return repair.Source{}, err
	}
	return repair.FromLog(dir, h.store.Log.Record), nil
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// finish completes a repair that was killed between putting the old log aside and the new one, which is whole, in its place.
func (r *repairer) finish() error {
	made, place := r.eventsDir(filepath.Join(r.tmp, resultFolder)), r.eventsDir(r.opts.dir)
	if isFolder(place) || !isFolder(made) {
		return nil
	}
	if err := os.Rename(made, place); err != nil {
		return err
	}
	return syncDirs(filepath.Dir(place))
}

// start opens a store at dir with this hub's keys.
func (r *repairer) start(ctx context.Context, dir string) (*hubProcess, error) {
	h := &hubProcess{opts: hubOptions{dir: dir, maxStore: r.opts.maxStore, logger: zerolog.Nop()}, url: r.url, keys: r.keys, failed: make(chan error, 1)}
	r.open = append(r.open, h)
	return h, h.startBroker(ctx)
}

// file is a source over a file: a run taken out with log export, which this hub has signed, or records as lines of JSON.
func (r *repairer) file(path string) (repair.Source, error) {
	f, err := os.Open(path)
	if err != nil {
		return repair.Source{}, domain.Invalid("repair log", plainPathError(err), "give a file of records")
	}
	defer f.Close()
	first := make([]byte, len(exportMagic))
	if _, err := io.ReadFull(f, first); err != nil || string(first) != exportMagic {
		return exportedRecords(path)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return repair.Source{}, err
	}
	recs := exportedRun{}
	sum, err := archive.Read(f, r.keys.Head().Public().(ed25519.PublicKey), recs)
	if err != nil {
		return repair.Source{}, err
	}
	if seq, digest, err := r.keys.Heads().Open(sum.SignedHead); err == nil {
		r.found = append(r.found, repair.Head{From: path, Seq: seq, Digest: digest})
	}
	return repair.FromRecords(path, recs), nil
}

// exportMagic begins the files of log export.
const exportMagic = "tensorturn export "

// exportedRun collects a run's records out of an export.
type exportedRun map[uint64]broker.Record

func (exportedRun) Begin(archive.Header) error                { return nil }
func (exportedRun) Hidden(uint64, domain.Digest) error        { return nil }
func (exportedRun) Object(domain.Digest, []byte, int64) error { return nil }
func (e exportedRun) Record(seq uint64, data []byte) error {
	e[seq] = broker.Record{Seq: seq, Data: bytes.Clone(data)}
	return nil
}

// exportedRecords reads a file of records as GET /api/v1/log gives them.
func exportedRecords(file string) (repair.Source, error) {
	f, err := os.Open(file)
	if err != nil {
		return repair.Source{}, domain.Invalid("repair log", plainPathError(err), "give a file of records")
	}
	defer f.Close()
	recs, last := map[uint64]broker.Record{}, uint64(0)
	in := bufio.NewReaderSize(f, 256<<10)
	for {
		line, err := readLine(in)
		if errors.Is(err, io.EOF) {
			return repair.FromRecords(file, recs), nil
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) { // a copy that was cut has still what comes before
			return repair.FromRecords(file, recs), nil
		}
		var rec gateway.LogRecord
		if err != nil || json.Unmarshal(line, &rec) != nil {
			continue // one line that the disk has changed takes no other with it: each record is proven by the chain
		}
		// A changed number must not take the place of the record that has it: lines stand in order.
		if _, there := recs[rec.Seq]; rec.Error == "" && len(rec.Data) > 0 && (!there || rec.Seq == last+1) {
			recs[rec.Seq] = broker.Record{Seq: rec.Seq, ID: rec.ID, Data: rec.Data}
		}
		last = rec.Seq
	}
}

// write makes a fresh log of the result beside the store, verifies it, and puts it in the place of the damaged one.
func (r *repairer) write(ctx context.Context, sources []repair.Source, want repair.Report) (kept string, err error) {
	place := filepath.Join(r.tmp, resultFolder)
	h, err := r.start(ctx, place)
	if err != nil {
		return "", err
	}
	w := repair.Write{Append: h.store.Log.Append}
	got, err := repair.Merge(ctx, registry(), sources, nil, func(rec broker.Record) error { return w.Add(ctx, registry(), rec) })
	if err == nil {
		err = w.Flush(ctx)
	}
	if err == nil && got.Digest != want.Digest {
		err = domain.Integrity("repair log", "the sources have changed meanwhile", "run it again")
	}
	if err != nil {
		return "", err
	}
	if err := h.stop(); err != nil {
		return "", err
	}
	kept = filepath.Join(r.opts.dir, "damaged-"+strings.ReplaceAll(wallClock().UTC().Format("2006-01-02T150405"), ":", ""))
	if err := os.MkdirAll(kept, 0o700); err != nil {
		return "", err
	}
	if err := os.Rename(r.eventsDir(r.opts.dir), filepath.Join(kept, "EVENTS")); err != nil {
		return "", err
	}
	if err := os.Rename(r.eventsDir(place), r.eventsDir(r.opts.dir)); err != nil {
		return "", err
	}
	if want.Missing != nil { // the owner has accepted its loss: what remembers more is put aside, and the feed is made anew
		feed := filepath.Join(filepath.Dir(r.eventsDir(r.opts.dir)), jetstream.FeedStream)
		for _, old := range []string{filepath.Join(r.opts.dir, "log.head"), feed} {
			if err := os.Rename(old, filepath.Join(kept, filepath.Base(old))); err != nil && !errors.Is(err, os.ErrNotExist) {
				return "", err
			}
		}
	}
	return kept, syncDirs(kept, r.opts.dir, filepath.Dir(r.eventsDir(r.opts.dir)))
}

// syncDirs makes changes of names durable.
func syncDirs(dirs ...string) error {
	var errs []error
	for _, d := range dirs {
		f, err := os.Open(d)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, f.Sync(), f.Close())
	}
	return errors.Join(errs...)
}
