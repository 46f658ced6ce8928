package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"tensorturn/broker"
	"tensorturn/broker/embedded"
	"tensorturn/broker/identity"
	"tensorturn/broker/repair"
	"tensorturn/domain"
)

// repairOptions are those of log repair.
type repairOptions struct {
	dir      string
	from     []string // folders of hubs, or exported records
	heads    []string // files that agents keep
	accept   uint64   // the end that the owner accepts although more was signed
	dry      bool
	maxStore int64
	exactly  uint64 // records that the result must have, 0 for any number
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
	Blind   string         `json:"kept_position_damaged,omitempty"` // why log.head proves nothing
}

func logRepair(a *app) *cobra.Command {
	var o repairOptions
	c := &cobra.Command{Use: "repair", Short: "put a damaged log together again from copies, proven by signed heads", Args: args(),
		Long: "For a stopped hub whose log is damaged. Follows the hash chain through the hub's own store and every --from: a copy of the hub's\n" +
			"folder, runs taken out with log export, or all records saved with: curl -H \"Authorization: Bearer KEY\" https://HUB/api/v1/log > log.jsonl\n" +
			"The result must contain the position kept beside the store and each --head: the file \"head\" of an agent's folder. When\n" +
			"more was signed than can be found nothing is written: those events were acknowledged. The damaged stream is kept in a folder damaged-TIME,\n" +
			"which may be a --from of the next repair; with --accept-loss the feed is kept there as well and made anew. A batch that a power cut left\n" +
			"stored in part, and of which nobody was told, needs none of this: the hub takes it out when it starts.",
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
	f.StringArrayVar(&o.from, "from", nil, "a copy of the hub's folder, what a repair put aside, a file of log export, or one of records; may be repeated")
	f.StringArrayVar(&o.heads, "head", nil, "a signed head that an agent keeps (its folder's file \"head\"); may be repeated")
	f.Uint64Var(&o.accept, "accept-loss", 0, "end the log at this record although more was signed: what follows is lost for ever")
	f.BoolVar(&o.dry, "dry-run", false, "say what would be done and change nothing")
	o.maxStore = defaultMaxStore
	f.Var((*byteSize)(&o.maxStore), "max-store", "what the hub is started with")
	return c
}

func (a *app) showRepaired(r repaired) {
	if r.Blind != "" {
		a.say("warning: %s: the position kept beside the store is damaged and proves nothing; give the file head of each agent's folder as --head", clean(r.Blind))
	}
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
	if err != nil && isHub(o.dir) { // only its URL is wanted
		if last, serr := readStart(o.dir); serr == nil && last.URL != "" {
			c.URL, err = last.URL, nil
		} else {
			return out, domain.Invalid("repair log", err.Error(), "start the hub once, as it is: it writes the file anew; then stop it and repair its log")
		}
	}
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
	if own, ok := errors.AsType[*domain.Error](err); ok && own.Kind == domain.KindConflict {
		own.Op, own.Next = "repair log", "stop it first: a log is put together again while nobody writes it"
	}
	if err != nil {
		return out, err
	}
	defer unlock()
	if err := (&repairer{keys: keys, tmp: filepath.Join(o.dir, workName), opts: o}).finish(); err != nil {
		return out, domain.Unavailable("repair log", plainPathError(err), "", nil)
	}
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
	out = repaired{Records: report.Records, Head: report.Digest, By: report.By, Healed: report.Healed, Proven: report.Proven, Blind: r.blind}
	if m := report.Missing; m != nil {
		out.Lost = m.Seq
		if o.accept == 0 || o.accept != report.Records {
			return out, domain.Integrity("repair log", fmt.Sprintf("what was found ends at %d, and %s holds a signed head at %d: events %d to %d were acknowledged and are in no source", report.Records, m.From, m.Seq, report.Records+1, m.Seq),
				fmt.Sprintf("give another copy with --from; if there is none, --accept-loss %d ends the log there for ever", report.Records))
		}
	}
	if o.exactly > 0 && report.Records != o.exactly {
		return out, domain.Integrity("repair log", fmt.Sprintf("more is missing than a batch that was being stored: record %d and what follows", report.Records+1), "run log repair, with copies")
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

// Folders of a repair: it works in the first, beside the store, and what it makes lies in the second within it until it is whole.
const (
	workName     = "repairing"
	resultFolder = "result"
)

// workFolder makes the folder of a repair, after taking away what one that was killed has left: copies of the log are long. Whoever calls
// it holds the lock of the store.
func workFolder(dir string) (string, error) {
	tmp := filepath.Join(dir, workName)
	if err := os.RemoveAll(tmp); err != nil {
		return "", err
	}
	return tmp, os.Mkdir(tmp, 0o700)
}
