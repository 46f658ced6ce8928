package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"tensorturn/domain"
)

// startFile keeps how the hub was started last, so that a bare `hub start --dir DIR` after a crash brings back the hub
// that the machines have joined, at the address they dial.
const startFile = "start.json"

// maxStartFile bounds the file: eight flags, two of them paths.
const maxStartFile = 32 << 10

// recalled are the flags that a start without them takes from the start before, in the order in which they are told.
var recalled = [...]string{"listen", "public-url", "tls-cert", "tls-key", "lease", "max-store", "min-free", "private-webhooks"}

// startedAs is what the file holds.
type startedAs struct {
	URL   string            `json:"url"`           // under which machines were told to join
	Flags map[string]string `json:"flags"`         // those that differ from their defaults
	Sum   string            `json:"sum,omitempty"` // see sum; none in files of earlier programs, or where an owner has taken it out
}

// sum is the CRC-32 of the rest: a changed digit of a lease or a port is as good a flag as the true one.
func (s startedAs) sum() string {
	s.Sum = ""
	b, err := json.Marshal(s)
	domain.Assert(err == nil, "text can be written as JSON")
	return fmt.Sprintf("%08x", crc32.ChecksumIEEE(b))
}

// readStart reads how the hub of the folder was started last. A hub that never ran, or ran before this was kept, gives what
// its operator.json tells: the URL.
func readStart(dir string) (s startedAs, err error) {
	const op, next = "read how the hub was started", "start it with both --listen and --public-url, and the file is made anew"
	path := filepath.Join(dir, startFile)
	f, err := os.Open(path)
	if os.IsNotExist(err) {
		c, err := loadContext(filepath.Join(dir, "operator.json"))
		if err == nil {
			s.URL = strings.TrimRight(c.URL, "/")
		}
		return s, nil // no file yet, or one that others judge
	}
	if err != nil {
		return s, domain.Invalid(op, plainPathError(err), next)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxStartFile+1))
	if err == nil && len(b) > maxStartFile {
		err = fmt.Errorf("it has more than %d bytes", maxStartFile)
	}
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(b))
		d.DisallowUnknownFields()
		if err = d.Decode(&s); err == nil && d.More() {
			err = fmt.Errorf("something follows its object")
		}
	}
	for name := range s.Flags {
		if !slices.Contains(recalled[:], name) {
			err = fmt.Errorf("there is no flag %q to remember", domain.Clip(name, domain.MaxNameLength))
		}
	}
	if err == nil && s.Sum != "" && s.Sum != s.sum() {
		err = errors.New("its checksum is wrong; take the line \"sum\" out if you have written the rest yourself")
	}
	if err != nil {
		return startedAs{}, domain.Invalid(op, path+" is damaged: "+err.Error(), next)
	}
	return s, nil
}

// recall sets the flags that were not given to what they were at the last start, and says which.
func recall(f *pflag.FlagSet, last startedAs) (said []string, err error) {
	for _, name := range recalled {
		v, kept := last.Flags[name]
		if !kept || f.Changed(name) {
			continue
		}
		if err := f.Set(name, v); err != nil {
			return nil, domain.Invalid("start hub", startFile+": "+err.Error(), "give --"+name)
		}
		said = append(said, "--"+name+" "+v)
	}
	return said, nil
}

// remember keeps how this hub was started, if that is new.
func (h *hubProcess) remember(f *pflag.FlagSet, last startedAs) error {
	s := startedAs{URL: h.url, Flags: map[string]string{}}
	for _, name := range recalled {
		if flag := f.Lookup(name); flag.Value.String() != flag.DefValue {
			s.Flags[name] = flag.Value.String()
		}
	}
	if _, port, err := net.SplitHostPort(h.opts.listen); err == nil && port == "0" {
		s.Flags["listen"] = h.bound // the system chose the port, and machines will look for it there
	}
	s.Sum = s.sum()
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	if was, err := json.MarshalIndent(last, "", "  "); err == nil && bytes.Equal(was, b) {
		return nil
	}
	return writeSmall(filepath.Join(h.opts.dir, startFile), append(b, '\n'))
}

// sayMoved warns the owner of machines that dial an address at which this hub is no more.
func (a *app) sayMoved(was, now string) {
	if was != "" && was != now {
		a.say("warning: the hub was %s before: machines that joined under that address will not find it at %s; start it with --public-url %s to have them back", was, now, was)
	}
}
