package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tensorturn/broker/hub"
	"tensorturn/broker/identity"
	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/test/kit"
	"tensorturn/test/offline"
)

// patient is the store that is changed, and what must be seen of it.
type patient struct {
	w      *world
	dir    string // store and snapshots as the hub's own code left them
	keys   *identity.Keys
	known  hub.Position
	events []event.Envelope
	ids    []string // id and digest of each record
	state  string   // of the runs, as JSON
	blobs  []domain.Digest
	places map[string][]place // by file below dir
	heads  map[string][]place // what stands before each record, by file
	files  []string
	blind  bool
	seed   uint64 // of the changes
}

// place is where a record's or an object's bytes lie in a file.
type place struct {
	from, to int64
	seq      uint64        // of an event
	blob     domain.Digest // of an object
}

// patient makes a short run and stops everything in good order.
func (w *world) patient() *patient {
	w.up("a", "b")
	id := w.submit(4)
	w.ended(id)
	for _, a := range w.agents {
		a.Stop(kit.Patience)
	}
	w.Hub.Stop(kit.Patience)
	keys, _, err := identity.OpenOrCreate(filepath.Join(w.HubDir(), "keys"), identity.Options{PublicURL: w.URL, Now: time.Now()})
	w.Must(err)
	p := &patient{w: w, dir: filepath.Join(w.TempDir(), "patient"), keys: keys, places: map[string][]place{}, heads: map[string][]place{}}
	w.Must(offline.Copy(w.HubDir(), p.dir))
	if seq, digest, ok := keptHead(filepath.Join(w.HubDir(), "log.head")); ok {
		p.known = hub.Position{Seq: seq, Digest: digest}
	}
	seen, err := p.look(p.dir) // and leave a snapshot behind
	w.Must(err)
	w.Must(seen.bad)
	p.events, p.ids, p.state = seen.events, seen.ids, seen.state
	w.Must(offline.Observe(context.Background(), p.dir))
	live := map[domain.Digest]bool{}
	for _, e := range p.events {
		for _, d := range named(e) {
			live[d] = true
		}
	}
	s, err := offline.Open(context.Background(), p.dir)
	w.Must(err)
	for d := range live {
		for _, o := range w.partsOf(s, d) {
			p.blobs = append(p.blobs, o)
		}
	}
	slices.Sort(p.blobs)
	p.blobs = slices.Compact(p.blobs)
	objects := map[domain.Digest][]byte{}
	for _, d := range p.blobs {
		objects[d], err = s.Blobs.Get(context.Background(), d)
		w.Must(err)
	}
	records := map[uint64][]byte{}
	for rec, err := range s.Log.Read(context.Background(), 1) {
		w.Must(err)
		records[rec.Seq] = rec.Data
	}
	s.Close()
	p.locate(records, objects)
	return p
}

// partsOf is the blob's manifest and its parts.
func (w *world) partsOf(s *offline.Store, d domain.Digest) []domain.Digest {
	text, err := s.Blobs.Get(context.Background(), d)
	w.Must(err)
	m, err := parseManifest(text)
	w.Must(err)
	return append([]domain.Digest{d}, m...)
}

// locate finds where each record and each object lies.
func (p *patient) locate(records map[uint64][]byte, objects map[domain.Digest][]byte) {
	p.w.Must(filepath.WalkDir(p.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(p.dir, path)
		if err != nil {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil || len(b) == 0 {
			return err
		}
		p.files = append(p.files, rel)
		if strings.HasSuffix(rel, ".blk") {
			p.heads[rel] = heads(b)
		}
		switch {
		case strings.Contains(rel, "/EVENTS/msgs/") && strings.HasSuffix(rel, ".blk"):
			for seq, data := range records {
				if at := bytes.Index(b, data); at >= 0 {
					p.places[rel] = append(p.places[rel], place{from: int64(at), to: int64(at + len(data)), seq: seq})
				}
			}
		case strings.Contains(rel, "/OBJ_BLOBS/msgs/") && strings.HasSuffix(rel, ".blk"):
			for d, data := range objects {
				if at := bytes.Index(b, data); at >= 0 && len(data) > 0 {
					p.places[rel] = append(p.places[rel], place{from: int64(at), to: int64(at + len(data)), blob: d})
				}
			}
		}
		return nil
	}))
	for _, ps := range p.places {
		slices.SortFunc(ps, func(a, b place) int { return int(a.from - b.from) })
	}
}

// recordHead is how many bytes nats-server writes before the subject of a record; the first four are its length.
const recordHead = 22

// heads finds them in a block.
func heads(block []byte) (out []place) {
	for at := 0; at+recordHead <= len(block); {
		out = append(out, place{from: int64(at), to: int64(at + recordHead)})
		at += max(recordHead, int(binary.LittleEndian.Uint32(block[at:])&^(1<<31)))
	}
	return out
}
