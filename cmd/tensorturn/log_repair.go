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
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"tensorturn/broker"
	"tensorturn/broker/embedded"
	"tensorturn/broker/gateway"
	"tensorturn/broker/identity"
	"tensorturn/broker/repair"
	"tensorturn/domain"
	"tensorturn/projections/archive"
)

// repairOptions are those of log repair.
type repairOptions struct {
	dir      string
	from     []string // folders of hubs, or exported records
	heads    []string // files that agents keep
	accept   uint64   // the end that the owner accepts although more was signed
	dry      bool
	maxStore int64
}

// repaired is the object of log repair --json.
type repaired struct {
	Records uint64         `json:"records"`
	Head    domain.Digest  `json:"head"`
	By      map[string]int `json:"records_by_source"`
	Healed  []uint64       `json:"healed"`
	Proven  uint64         `json:"proven_by_signed_head"`
	Lost    uint64         `json:"lost_up_to,omitempty"`
	Written bool           `json:"written"`
	Damaged string         `json:"damaged_stream,omitempty"`
}

func logRepair(a *app) *cobra.Command {
	var o repairOptions
	c := &cobra.Command{Use: "repair", Short: "put a damaged log together again from copies, proven by signed heads", Args: args(),
		Long: "For a stopped hub whose log is damaged. Follows the hash chain through the hub's own store and every --from: a copy of the hub's\n" +
			"folder, runs taken out with log export, or all records saved with: curl -H \"Authorization: Bearer KEY\" https://HUB/api/v1/log > log.jsonl\n" +
			"The result must contain the position kept beside the store and each --head: the file \"head\" of an agent's folder. When\n" +
			"more was signed than can be found nothing is written: those events were acknowledged. The damaged stream is kept.",
		RunE: func(c *cobra.Command, _ []string) error {
			r, err := a.repairLog(c.Context(), o)
			if err != nil {
				return err
			}
			if a.json {
				return a.object(r)
			}
			a.showRepaired(r)
			return nil
		}}
	f := c.Flags()
	f.StringVar(&o.dir, "dir", hubDir(), "folder of the stopped hub")
	f.StringArrayVar(&o.from, "from", nil, "a copy of the hub's folder, a file of log export, or one of records; may be repeated")
	f.StringArrayVar(&o.heads, "head", nil, "a signed head that an agent keeps (its folder's file \"head\"); may be repeated")
	f.Uint64Var(&o.accept, "accept-loss", 0, "end the log at this record although more was signed: what follows is lost for ever")
	f.BoolVar(&o.dry, "dry-run", false, "say what would be done and change nothing")
	f.Int64Var(&o.maxStore, "max-store", 64<<30, "what the hub is started with")
	return c
}

func (a *app) showRepaired(r repaired) {
	for _, from := range slices.Sorted(maps.Keys(r.By)) {
		a.print("%s from %s", count(r.By[from], "record"), from)
	}
	if n := len(r.Healed); n > 0 {
		a.print("missing or damaged in the hub's store and found elsewhere: %d to %d, %s at least", r.Healed[0], r.Healed[n-1], count(n, "record"))
	}
	a.print("the log has %s and ends with %s; signed heads prove it up to %d", count(int64(r.Records), "record"), r.Head.Short(), r.Proven)
	if r.Lost > 0 {
		a.print("events %d to %d were acknowledged and are lost, as you accepted", r.Records+1, r.Lost)
	}
	switch {
	case !r.Written:
		a.print("nothing was changed")
	default:
		a.print("the repaired log is in place; the damaged one is kept in %s", r.Damaged)
	}
}

// repairLog repairs the log of a hub's folder.
func (a *app) repairLog(ctx context.Context, o repairOptions) (out repaired, err error) {
	c, err := loadContext(filepath.Join(o.dir, "operator.json"))
	if err != nil {
		return out, domain.Invalid("repair log", o.dir+" is not the folder of a hub", "give it with --dir")
	}
	keys, _, err := identity.OpenOrCreate(filepath.Join(o.dir, "keys"), identity.Options{PublicURL: c.URL, Hostname: hostname(), Now: wallClock()})
	if err != nil {
		return out, err
	}
	return repairWith(ctx, keys, c.URL, o)
}

// repairWith reads, judges, and only then writes.
func repairWith(ctx context.Context, keys *identity.Keys, url string, o repairOptions) (out repaired, err error) {
	unlock, err := embedded.Lock(filepath.Join(o.dir, "store"))
	if err != nil {
		return out, err
	}
	defer unlock()
	tmp, err := workFolder(o.dir)
	if err != nil {
		return out, domain.Unavailable("repair log", plainPathError(err), "make room beside the store: the log is read from a copy", nil)
	}
	defer os.RemoveAll(tmp)
	r := &repairer{keys: keys, url: url, tmp: tmp, opts: o}
	defer r.close()
	heads, err := r.heads()
	if err != nil {
		return out, err
	}
	sources, err := r.sources(ctx)
	if err != nil {
		return out, err
	}
	heads = append(heads, r.found...)
	report, err := repair.Merge(ctx, registry(), sources, heads, func(broker.Record) error { return nil })
	if err != nil {
		return out, err
	}
	out = repaired{Records: report.Records, Head: report.Digest, By: report.By, Healed: report.Healed, Proven: report.Proven}
	if m := report.Missing; m != nil {
		out.Lost = m.Seq
		if o.accept == 0 || o.accept != report.Records {
			return out, domain.Integrity("repair log", fmt.Sprintf("what was found ends at %d, and %s holds a signed head at %d: events %d to %d were acknowledged and are in no source", report.Records, m.From, m.Seq, report.Records+1, m.Seq),
				fmt.Sprintf("give another copy with --from; if there is none, --accept-loss %d ends the log there for ever", report.Records))
		}
	}
	if report.Records == 0 {
		return out, domain.Integrity("repair log", "no source has the first record", "give a copy with --from")
	}
	if o.dry {
		return out, nil
	}
	out.Damaged, err = r.write(ctx, sources, report)
	out.Written = err == nil
	return out, err
}

// workFolder makes the folder of a repair, after taking away what one that was killed has left: copies of the log are long. Whoever calls
// it holds the lock of the store.
func workFolder(dir string) (string, error) {
	tmp := filepath.Join(dir, "repairing")
	if err := os.RemoveAll(tmp); err != nil {
		return "", err
	}
	return tmp, os.Mkdir(tmp, 0o700)
}

// repairer holds what a repair has open.
type repairer struct {
	keys *identity.Keys
	url  string
	tmp  string
	opts repairOptions
	open []*hubProcess

	found []repair.Head // signed positions that came with the sources
}

func (r *repairer) close() {
	for _, h := range r.open {
		_ = h.stop()
	}
}

// heads reads the position kept beside the store and those of agents. One that this hub's key has not signed says nothing and is
// refused by name when it was given.
func (r *repairer) heads() ([]repair.Head, error) {
	var out []repair.Head
	for i, file := range append([]string{filepath.Join(r.opts.dir, "log.head")}, r.opts.heads...) {
		b, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) && i == 0 {
			continue
		}
		if err != nil {
			return nil, domain.Invalid("repair log", plainPathError(err), "a head is the file \"head\" of an agent's folder")
		}
		seq, digest, err := r.keys.Heads().Open(b)
		if err != nil && i > 0 {
			return nil, domain.Invalid("repair log", file+" is no head that this hub has signed", "take it from the folder of an agent of this hub")
		}
		if err == nil {
			out = append(out, repair.Head{From: file, Seq: seq, Digest: digest})
		}
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
		if _, err := os.Stat(r.eventsDir(from)); i == 0 && len(r.opts.from) > 0 && errors.Is(err, os.ErrNotExist) {
			continue // a repair before was killed between putting the old log aside and the new one in its place
		}
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

// folder opens a copy of a hub's log: JetStream changes what it opens.
func (r *repairer) folder(ctx context.Context, dir string, i int) (repair.Source, error) {
	place := filepath.Join(r.tmp, fmt.Sprintf("source-%d", i))
	if err := os.CopyFS(r.eventsDir(place), os.DirFS(r.eventsDir(dir))); err != nil {
		return repair.Source{}, domain.Invalid("repair log", "the log in "+dir+" cannot be copied: "+err.Error(), "give a folder of this hub, and room beside the store")
	}
	h, err := r.start(ctx, place)
	if err != nil {
		return repair.Source{}, err
	}
	return repair.FromLog(dir, h.store.Log.Record), nil
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
	recs := map[uint64]broker.Record{}
	in := bufio.NewReaderSize(f, 256<<10)
	for {
		line, err := readLine(in)
		if errors.Is(err, io.EOF) {
			return repair.FromRecords(file, recs), nil
		}
		var rec gateway.LogRecord
		if err == nil {
			err = json.Unmarshal(line, &rec)
		}
		if err != nil { // a copy that was cut has still what comes before
			return repair.FromRecords(file, recs), nil
		}
		if rec.Error == "" && len(rec.Data) > 0 {
			recs[rec.Seq] = broker.Record{Seq: rec.Seq, ID: rec.ID, Data: rec.Data}
		}
	}
}

// write makes a fresh log of the result beside the store, verifies it, and puts it in the place of the damaged one.
func (r *repairer) write(ctx context.Context, sources []repair.Source, want repair.Report) (kept string, err error) {
	place := filepath.Join(r.tmp, "result")
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
	if want.Missing != nil { // the owner has accepted its loss
		if err := os.Rename(filepath.Join(r.opts.dir, "log.head"), filepath.Join(kept, "log.head")); err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", err
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
