package main

import (
	"context"
	"path/filepath"
	"time"

	"github.com/rs/zerolog"

	"tensorturn/broker"
	"tensorturn/broker/embedded"
	"tensorturn/broker/identity"
	"tensorturn/broker/jetstream"
)

const storeBytes = 8 << 30 // granted to a log's server; a bench uses a few dozen MiB

// openLog starts the hub's own broker in this process on a new folder of the disk, with the hub's settings, and opens
// its log.
func openLog(d *bed) broker.Log { return openStoreIn(d, d.TempDir()).Log }

// openStoreIn is openLog in a folder that may hold one already.
func openStoreIn(d *bed, dir string) *jetstream.Store {
	keys, _, err := identity.OpenOrCreate(filepath.Join(dir, "keys"), identity.Options{PublicURL: "https://127.0.0.1:7443", Now: time.Now()})
	d.Must(err)
	o := embedded.HubOptions{Name: "hub", StoreDir: filepath.Join(dir, "store"), MaxStore: storeBytes, MaxMemory: 64 << 20, Logger: zerolog.Nop()}
	o.Operator, err = keys.OperatorJWT()
	d.Must(err)
	o.System = account(d, keys, identity.RoleSystem, keys.SystemAccount)
	o.Hub = account(d, keys, identity.RoleHub, func() (string, error) {
		return keys.HubAccount(identity.Store{Disk: o.MaxStore, Memory: o.MaxMemory})
	})
	o.Service = account(d, keys, identity.RoleService, keys.ServiceAccount)
	h, err := embedded.StartHub(context.Background(), o)
	d.Must(err)
	d.Cleanup(func() { _ = h.Shutdown() })
	nc, err := h.HubConn("bench")
	d.Must(err)
	s, err := jetstream.Open(context.Background(), nc, embedded.JetStreamDomain, storeBytes)
	d.Must(err)
	return s
}

func account(d *bed, keys *identity.Keys, r identity.Role, encode func() (string, error)) embedded.Account {
	jwt, err := encode()
	d.Must(err)
	token, user, err := keys.InProcess(r)
	d.Must(err)
	return embedded.Account{Public: keys.PublicAccount(r), JWT: jwt,
		User: embedded.User{JWT: func() (string, error) { return token, nil }, Sign: user.Sign}}
}
