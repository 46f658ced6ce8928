package hub

import (
	"fmt"
	"testing"

	"tensorturn/domain"
	"tensorturn/domain/freeze"
)

// A key stands for the request it came with, and for no other one, as long as its command is remembered.
func TestKeysOfCommands(t *testing.T) {
	id := KeyedCommand([]byte("k"), []byte("a"))
	if !domain.ValidID(string(id)) || len(id) > maxCommandID || keyOf(id) == "" {
		t.Fatalf("%s is no id of a command", id)
	}
	other, stranger := KeyedCommand([]byte("k"), []byte("b")), KeyedCommand([]byte("l"), []byte("a"))
	c := causes{seen: map[domain.CommandID]struct{}{}}
	c.add(id)
	if !c.has(id) || c.taken(id) || c.has(other) || !c.taken(other) || c.has(stranger) || c.taken(stranger) || c.taken("c-1") || c.taken("key-x") {
		t.Error("the key stands for another request")
	}
	for i := range maxCauses {
		c.add(domain.CommandID(fmt.Sprintf("c-%d", i)))
	}
	if c.has(id) || c.taken(other) || len(c.keys) != 0 {
		t.Error("a command that is forgotten leaves its key")
	}
	c.add(other)
	if !c.taken(id) {
		t.Error("a forgotten key cannot be used again")
	}
}

// A hub that starts from a snapshot knows the keys of the requests before it.
func TestKeysOutliveASnapshot(t *testing.T) {
	f := newFold()
	f.causes.add(KeyedCommand([]byte("k"), []byte("a")))
	frozen, err := freeze.Freeze(f.part())
	if err != nil {
		t.Fatal(err)
	}
	base, err := Thaw(Position{}, frozen)
	if err != nil {
		t.Fatal(err)
	}
	if c := &base.fold.causes; !c.has(KeyedCommand([]byte("k"), []byte("a"))) || !c.taken(KeyedCommand([]byte("k"), []byte("b"))) {
		t.Error("the key is free again for another request")
	}
}
