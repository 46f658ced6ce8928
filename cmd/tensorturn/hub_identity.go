package main

import (
	"errors"
	"os"
	"path/filepath"

	"tensorturn/broker/hub"
	"tensorturn/broker/identity"
	"tensorturn/domain"
	"tensorturn/projections/fleet"
)

// NewAccount and Credential make identities for the gateway.
func (h *hubProcess) NewAccount(m domain.MachineID) (string, error) {
	id, err := h.keys.Machine(m)
	return id.Account, err
}

// Credential issues a user credential for the machine's nkey.
func (h *hubProcess) Credential(m domain.MachineID, nkey string) (string, error) {
	id, err := h.keys.KnownMachine(m)
	if err != nil {
		return "", err
	}
	return id.Credential(nkey, identity.CredentialLife, wallClock())
}

// renew issues a fresh credential at half of the old one's life, for the key the machine enrolled with.
func (h *hubProcess) renew(m domain.MachineID) (string, error) {
	var found fleet.Machine
	h.views.Engine.Read(func(uint64) { found, _ = h.views.Fleet.Find(string(m)) })
	return h.Credential(m, found.NKey)
}

// admit loads a machine's account into the broker.
func (h *hubProcess) admit(m domain.MachineID) {
	err := h.withAccount(m, h.keys.MachineAccount, h.broker.AddMachine)
	if err != nil {
		h.opts.logger.Error().Str("machine", string(m)).Err(err).Str("next", domain.NextOf(err)).Msg("machine account not loaded")
	}
}

// cutOff ends a revoked machine's connections and lets it open no more.
func (h *hubProcess) cutOff(m domain.MachineID) {
	err := h.withAccount(m, func(id identity.Machine) (string, error) { return h.keys.RevokedAccount(id, wallClock()) }, h.broker.RevokeMachine)
	if err != nil {
		h.opts.logger.Error().Str("machine", string(m)).Err(err).Msg("revoked machine not cut off")
	}
}

func (h *hubProcess) withAccount(m domain.MachineID, encode func(identity.Machine) (string, error), use func(string) error) error {
	id, err := h.keys.KnownMachine(m)
	if err != nil {
		return err
	}
	token, err := encode(id)
	if err != nil {
		return err
	}
	return use(token)
}

// logHeadFile holds the newest signed position of the log, beside the store and not inside it: a store that was cut short
// looks like a shorter log to itself.
func (h *hubProcess) logHeadFile() string { return filepath.Join(h.opts.dir, "log.head") }

func (h *hubProcess) keepHead(p hub.Position) error {
	return writeSmall(h.logHeadFile(), h.keys.Heads().Sign(p.Seq, p.Digest))
}

// knownHead is the position kept by the process before. A file that this hub did not sign says nothing.
func (h *hubProcess) knownHead() hub.Position {
	b, err := readSmall(h.logHeadFile(), maxHeadFile)
	if errors.Is(err, os.ErrNotExist) {
		return hub.Position{}
	}
	var seq uint64
	var digest domain.Digest
	if err == nil {
		seq, digest, err = h.keys.Heads().Open(b)
	}
	if err != nil {
		h.opts.logger.Warn().Err(err).Str("file", h.logHeadFile()).Msg("kept position of the log is not ours, ignored")
		return hub.Position{}
	}
	return hub.Position{Seq: seq, Digest: digest}
}
