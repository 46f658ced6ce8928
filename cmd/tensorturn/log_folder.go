package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/rs/zerolog"

	"tensorturn/broker"
	"tensorturn/broker/embedded"
	"tensorturn/broker/gateway"
	"tensorturn/broker/identity"
	"tensorturn/broker/jetstream"
	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/projections/archive"
)

// copiedStore is what the server that reads the copy of a log is granted: more than any log was.
const copiedStore = 1 << 46

// verifyFolder is `log verify --dir`: the log of a hub that is stopped. The folder is locked against a hub that starts, and
// nothing in it is changed: JetStream writes where it reads, so it is given a copy of the log's own files.
func (a *app) verifyFolder(ctx context.Context, dir string) error {
	v, blind, err := checkFolder(ctx, dir)
	if blind != nil {
		a.say("warning: %s: the position kept beside the store is damaged: whether the log's end is missing is not known", clean(plainPathError(blind)))
	}
	if err != nil && domain.KindOf(err) != domain.KindIntegrity {
		return err
	}
	v.OK = err == nil
	if err != nil {
		v.Reason = err.Error()
		v.FirstBad, _ = event.FirstBad(err)
	}
	if a.json {
		if perr := a.object(v); perr != nil {
			return perr
		}
		a.json = false // the object is the answer; the error goes to standard error only
	} else if err == nil {
		a.print("ok: %d records, head %s, key %s", v.Records, v.Head, v.Key)
	}
	return err
}

// checkFolder verifies the log. blind says why the position kept beside the store could not be compared with its end.
func checkFolder(ctx context.Context, dir string) (v gateway.Verified, blind, err error) {
	store := filepath.Join(dir, "store")
	found, err := filepath.Glob(filepath.Join(escapeGlob(store), "jetstream", "*", "streams", jetstream.EventStream))
	if err != nil || len(found) != 1 {
		return v, nil, domain.NotFound("verify log", dir+" is no hub's folder with a log", "give the folder that `hub start --dir` was given")
	}
	unlock, err := embedded.Lock(store)
	if domain.KindOf(err) == domain.KindConflict {
		return v, nil, domain.Conflict("verify log", "a hub is running on "+dir, "ask it: tensorturn log verify")
	}
	if err != nil {
		return v, blind, err
	}
	defer unlock()
	key, err := identity.HeadKey(filepath.Join(dir, "keys"))
	if err != nil {
		return v, blind, err
	}
	v.Key = archive.FormatKey(key)
	tmp, err := os.MkdirTemp("", "tensorturn-verify-")
	if err != nil {
		return v, nil, domain.Unavailable("verify log", "no temporary folder can be made", "set TMPDIR to a folder with room for the log", err)
	}
	defer os.RemoveAll(tmp)
	log, stop, err := openCopy(ctx, found[0], tmp)
	if err != nil {
		return v, blind, err
	}
	defer stop()
	check := event.NewVerifier(registry())
	b, blind := readSmall(filepath.Join(dir, "log.head"), maxHeadFile)
	switch seq, digest, herr := identity.OpenHead(key, b); {
	case errors.Is(blind, os.ErrNotExist):
		blind = nil
	case blind == nil && herr != nil:
		blind = fmt.Errorf("%s: %w", filepath.Join(dir, "log.head"), herr)
	case blind == nil:
		check.Expect(seq, digest)
	}
	v.Records, v.Head, err = broker.Verify(ctx, log, check, func(event.Envelope) error { return nil })
	return v, blind, err
}

// openCopy copies a log's files below tmp and opens them by a server of its own, with keys of its own.
func openCopy(ctx context.Context, stream, tmp string) (broker.Log, func(), error) {
	keys, err := identity.Create(filepath.Join(tmp, "keys"), identity.Options{PublicURL: "https://127.0.0.1:7443", Now: time.Now()})
	if err != nil {
		return nil, nil, err
	}
	h := &hubProcess{opts: hubOptions{dir: tmp, maxStore: copiedStore, logger: zerolog.Nop()}, keys: keys, url: "https://127.0.0.1:7443"}
	to := filepath.Join(tmp, "store", "jetstream", keys.PublicAccount(identity.RoleHub), "streams", jetstream.EventStream)
	if err := copyTree(stream, to); err != nil {
		return nil, nil, domain.Unavailable("verify log", "its files cannot be copied: "+err.Error(), "set TMPDIR to a folder with room for the log", err)
	}
	if err := h.startBroker(ctx); err != nil {
		h.stop()
		return nil, nil, err
	}
	return h.store.Log, func() { h.stop() }, nil
}

// copyTree copies folders and files; consumers, which are no part of the log, stay behind.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		switch {
		case d.IsDir() && rel == "obs":
			return filepath.SkipDir
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		case d.Type().IsRegular():
			return copyFile(path, filepath.Join(to, rel))
		}
		return nil
	})
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}
