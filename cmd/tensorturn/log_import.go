package main

import (
	"crypto/ed25519"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/adrg/xdg"
	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"tensorturn/domain"
	"tensorturn/projections/archive"
)

// archiveDir is the default place of runs of other hubs.
func archiveDir() string { return filepath.Join(xdg.DataHome, "tensorturn", "archive") }

// maxArchived bounds how many files of an archive are looked at.
const maxArchived = 10_000

func logImport(a *app) *cobra.Command {
	var key, dir string
	c := &cobra.Command{Use: "import FILE", Short: "check an exported run by its hub's public key and put it into an archive", Args: args("FILE"),
		Long: "The archive is a folder of its own: nothing is mixed into any hub's log. `tensorturn run list --archived` lists it,\n" +
			"`tensorturn run replay RUN --archive DIR --verify` verifies a run of it, with no hub at all.",
		RunE: func(c *cobra.Command, got []string) error {
			k, err := readKey(key)
			if err != nil {
				return err
			}
			e, err := importRun(got[0], dir, k)
			if err != nil {
				return err
			}
			if a.json {
				return a.object(e)
			}
			a.say("%s is in %s: %d records, %d blobs", e.Run, e.File, e.Records, e.Objects)
			return nil
		}}
	c.Flags().StringVar(&key, "key", "", "public key of the hub that the run comes from, or a file with it")
	c.Flags().StringVar(&dir, "archive", archiveDir(), "folder of the archive")
	return c
}

// importRun copies the file beside its key, and checks the copy before it gets its name.
func importRun(path, dir string, key ed25519.PublicKey) (takenOut, error) {
	src, err := os.Open(path)
	if err != nil {
		return takenOut{}, domain.NotFound("import run", plainPathError(err), "give the file that `tensorturn log export` wrote")
	}
	defer src.Close()
	f, err := openExport(src, key) // before a byte is written: a file that is none needs no room
	if err != nil {
		return takenOut{}, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return takenOut{}, domain.Invalid("import run", plainPathError(err), "choose another folder with --archive")
	}
	name := filepath.Join(dir, string(f.Run)+"-"+archive.FormatKey(key)[:8])
	if _, err := src.Seek(0, io.SeekStart); err != nil {
		return takenOut{}, err
	}
	out, err := renameio.NewPendingFile(name+exportSuffix, renameio.WithPermissions(0o600))
	if err != nil {
		return takenOut{}, domain.Unavailable("import run", plainPathError(err), "look at the archive's disk", err)
	}
	defer out.Cleanup()
	if _, err := io.Copy(out, src); err != nil {
		return takenOut{}, domain.Unavailable("import run", "the archive cannot be written", "look at its disk", err)
	}
	if _, err := out.Seek(0, io.SeekStart); err != nil {
		return takenOut{}, err
	}
	if f, err = openExport(out, key); err != nil {
		return takenOut{}, err
	}
	if err := renameio.WriteFile(name+".key", []byte(archive.FormatKey(key)+"\n"), 0o600); err != nil {
		return takenOut{}, err
	}
	return takenOutOf(name+exportSuffix, key, f.Summary), out.CloseAtomicallyReplace()
}

// archived opens every file of an archive, one after another, with the key it was imported by. yield returns false to end.
func archived(dir string, marks []uint64, yield func(path string, f *archive.File, err error) bool) error {
	names, err := filepath.Glob(filepath.Join(escapeGlob(dir), "*"+exportSuffix))
	if err != nil || len(names) > maxArchived {
		return domain.Invalid("read archive", dir+" has too many files or cannot be listed", "choose another folder with --archive")
	}
	for _, n := range names {
		f, err := openArchived(n, marks)
		more := yield(n, f.File, err)
		f.close()
		if !more {
			break
		}
	}
	return nil
}

// escapeGlob keeps a folder's name from being taken for a pattern.
func escapeGlob(dir string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(dir)
}

// archivedFile is an open file of an archive.
type archivedFile struct {
	*archive.File
	src *os.File
}

func (f archivedFile) close() {
	if f.src != nil {
		f.src.Close()
	}
}

func openArchived(path string, marks []uint64) (archivedFile, error) {
	key, err := readKey(strings.TrimSuffix(path, exportSuffix) + ".key")
	if err != nil {
		return archivedFile{}, err
	}
	src, err := os.Open(path)
	if err != nil {
		return archivedFile{}, domain.Invalid("read archive", plainPathError(err), "")
	}
	f, err := openExport(src, key, marks...)
	return archivedFile{f, src}, err
}

// findArchived opens the only run of an archive whose id is or begins with key.
func findArchived(dir, key string, marks []uint64) (archivedFile, error) {
	names, err := filepath.Glob(filepath.Join(escapeGlob(dir), escapeGlob(key)+"*"+exportSuffix))
	if err != nil || key == "" {
		return archivedFile{}, domain.Invalid("read archive", "that is no run's id", "list them with: tensorturn run list --archived")
	}
	switch len(names) {
	case 0:
		return archivedFile{}, domain.NotFound("read archive", dir+" has no run "+domain.Clip(key, domain.MaxIDLength), "list them with: tensorturn run list --archived --archive "+dir)
	case 1:
		return openArchived(names[0], marks)
	}
	return archivedFile{}, domain.Conflict("read archive", "several runs may be meant", "give the whole id; list them with: tensorturn run list --archived --archive "+dir)
}

// listArchived tells what an archive holds. A file that does not verify is told as such, and the list goes on.
func (a *app) listArchived(dir string) error {
	type row struct {
		Run   domain.RunID `json:"run"`
		Name  string       `json:"name"`
		Phase string       `json:"phase"`
		File  string       `json:"file"`
		Error string       `json:"error,omitempty"`
		Count string       `json:"-"`
	}
	list := []row{}
	var bad error
	err := archived(dir, nil, func(path string, f *archive.File, err error) bool {
		r := row{File: path}
		if err != nil {
			r.Error, bad = err.Error(), err
		} else {
			s := f.Log.State()
			r.Run, r.Name, r.Phase, r.Count = f.Run, s.Spec.Name, string(s.Phase), percent(s.Ledger().Counted, s.Ledger().Expected)
		}
		list = append(list, r)
		return true
	})
	if err != nil {
		return err
	}
	if a.json {
		return a.object(list)
	}
	rows := [][]string{}
	for _, r := range list {
		if r.Error != "" {
			a.say("%s: %s", r.File, clean(r.Error))
			continue
		}
		rows = append(rows, []string{string(r.Run), r.Name, r.Phase, r.Count, r.File})
	}
	a.table([]string{"RUN", "NAME", "PHASE", "COUNTED", "FILE"}, rows)
	return bad
}
