package main

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"tensorturn/broker/gateway"
	"tensorturn/broker/identity"
	"tensorturn/domain"
	"tensorturn/projections/archive"
	"tensorturn/projections/replay"
)

// exportSuffix ends the names of files that hold one run.
const exportSuffix = ".ttrun"

func logExport(a *app) *cobra.Command {
	var out string
	var eventsOnly bool
	c := &cobra.Command{Use: "export RUN", Short: "write a run as one signed file, to be verified anywhere with the hub's public key alone", Args: args("RUN"),
		Long: "The file holds the run's records, the SHA-256 of every record between them, the blobs that a verification reads, and\n" +
			"the hub's signature over all of it. Nothing else of other runs or machines is in it. The hub's public key is printed:\n" +
			"give it to whoever verifies by another way than the file.",
		RunE: func(c *cobra.Command, got []string) error {
			cl, err := a.client()
			if err != nil {
				return err
			}
			r, err := cl.run(c.Context(), got[0])
			if err != nil {
				return err
			}
			if out == "" {
				out = string(r.ID) + exportSuffix
			}
			e, err := exportRun(c.Context(), cl, r.ID, out, eventsOnly)
			if err != nil {
				return err
			}
			if a.json {
				return a.object(e)
			}
			a.say("wrote %s to %s: %d records, %d of others by their digests, %d blobs", domain.FormatSize(e.Bytes), out, e.Records, e.Hidden, e.Objects)
			a.say("verify it anywhere with: tensorturn log verify %s --key %s", out, e.Key)
			return nil
		}}
	c.Flags().StringVarP(&out, "output", "o", "", "file to write (default: the run's id with "+exportSuffix+")")
	c.Flags().BoolVar(&eventsOnly, "events-only", false, "leave the blobs out: chain, signature and ledger can be verified, merges cannot")
	return c
}

// takenOut is what a file holds; its JSON is a contract.
type takenOut struct {
	File    string        `json:"file"`
	Run     domain.RunID  `json:"run"`
	Key     string        `json:"key"` // the hub's public key
	First   uint64        `json:"first"`
	Last    uint64        `json:"last"`
	Head    domain.Digest `json:"head"`
	Records uint64        `json:"records"`
	Hidden  uint64        `json:"hidden"` // records of others, by their digests
	Objects uint64        `json:"blobs"`
	Bytes   int64         `json:"bytes"`

	Replay *replay.Report `json:"replay,omitempty"`
}

func takenOutOf(path string, key ed25519.PublicKey, s archive.Summary) takenOut {
	return takenOut{File: path, Run: s.Run, Key: archive.FormatKey(key), First: s.First, Last: s.Last, Head: s.Head, Records: s.Records, Hidden: s.Hidden,
		Objects: s.Objects, Bytes: s.Bytes}
}

// exportRun fetches the file, checks it to its end, and only then gives it its name.
func exportRun(ctx context.Context, cl *client, id domain.RunID, out string, eventsOnly bool) (takenOut, error) {
	path := "/api/v1/runs/" + url.PathEscape(string(id)) + "/export"
	if eventsOnly {
		path += "?events_only=true"
	}
	resp, err := cl.do(ctx, http.MethodGet, path, nil, 0)
	if err != nil {
		return takenOut{}, err
	}
	defer resp.Body.Close()
	key, err := archive.ParseKey(resp.Header.Get(gateway.HeaderKey))
	if err != nil {
		return takenOut{}, err
	}
	f, err := renameio.NewPendingFile(out, renameio.WithPermissions(0o644))
	if err != nil {
		return takenOut{}, domain.Invalid("export run", plainPathError(err), "choose another file with --output")
	}
	defer f.Cleanup()
	if _, err := io.Copy(f, resp.Body); err != nil {
		return takenOut{}, domain.Unavailable("export run", "the stream from the hub was cut", "try again; the hub's own log says why if it was the hub", err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return takenOut{}, err
	}
	file, err := openExport(f, key)
	if err != nil {
		return takenOut{}, err
	}
	return takenOutOf(out, key, file.Summary), f.CloseAtomicallyReplace()
}

// openExport checks a file by a hub's public key, the signed head in it too.
func openExport(src archive.Source, key ed25519.PublicKey, marks ...uint64) (*archive.File, error) {
	f, err := archive.Open(src, key, registry(), marks...)
	if err != nil {
		return f, err
	}
	if seq, digest, err := identity.OpenHead(key, f.SignedHead); err != nil || seq != f.Last || digest != f.Head {
		return f, domain.Integrity("verify export", "signed head: it is not that of the last record", "fetch the file again")
	}
	return f, nil
}

// readKey takes a public key as hex, or the name of a file that holds it.
func readKey(s string) (ed25519.PublicKey, error) {
	if s == "" {
		return nil, domain.Invalid("verify export", "no key is given", "--key takes the hub's public key or a file with it; `tensorturn log verify` prints it on that hub")
	}
	k, err := archive.ParseKey(s)
	if err == nil {
		return k, nil
	}
	b, ferr := readSmall(s, maxKeyFile)
	if ferr != nil {
		return nil, err
	}
	return archive.ParseKey(strings.TrimSpace(string(b)))
}

// verifyExport is `log verify FILE`: everything, with the file and the key alone.
func (a *app) verifyExport(ctx context.Context, path, key string) error {
	src, err := os.Open(path)
	if err != nil {
		return domain.NotFound("verify export", plainPathError(err), "give the file that `tensorturn log export` wrote")
	}
	defer src.Close()
	k, err := readKey(key)
	if err != nil {
		return err
	}
	f, err := openExport(src, k)
	if err != nil {
		return err
	}
	e := takenOutOf(path, k, f.Summary)
	what := "chain, signature and ledger hold; blobs are not in the file"
	if !f.EventsOnly {
		r, err := a.verify(ctx, f.Get, f.Log)
		if err != nil {
			return err
		}
		e.Replay = &r
		what = fmt.Sprintf("chain and signature hold, replay %s: %d of %d rounds recomputed", r.Verdict, r.Recomputed, r.Rounds)
		if r.Vote != nil {
			what += ", the vote counted again"
		}
	}
	if a.json {
		return a.object(e)
	}
	a.print("ok: run %s, %d records from %d to %d; %s; head %s", e.Run, e.Records, e.First, e.Last, what, e.Head.Short())
	return nil
}
