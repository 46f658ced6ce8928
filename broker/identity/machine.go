package identity

import (
	"errors"
	"path/filepath"

	"github.com/nats-io/nkeys"

	"tensorturn/domain"
)

// Machine is one machine as the hub's key directory knows it: its NATS account.
type Machine struct {
	ID      domain.MachineID
	Account string // public key: the identity in subjects
	account nkeys.KeyPair
}

// Machine returns the machine's account, made and stored on the first call for its id. Calling it again is safe, also
// after a crash: an account whose machine never came into the log is a file without effect.
func (k *Keys) Machine(id domain.MachineID) (Machine, error) {
	if _, err := domain.ParseID[domain.MachineID]("machine", string(id)); err != nil {
		return Machine{}, err
	}
	path := filepath.Join(k.dir, dirMachines, string(id)+".seed")
	kp, err := readAccountSeed(path)
	if missing(err) {
		var seed []byte
		if seed, err = newSeed(nkeys.PrefixByteAccount); err != nil {
			return Machine{}, err
		}
		if err = createSecret(path, seed); err != nil {
			return Machine{}, err
		}
		kp, err = readAccountSeed(path) // the file decides, should two callers have raced
	}
	if err != nil {
		return Machine{}, err
	}
	return Machine{ID: id, Account: public(kp), account: kp}, nil
}

// KnownMachine returns the account of a machine that enrolled earlier; a missing seed is damage, since a new one would
// be another identity.
func (k *Keys) KnownMachine(id domain.MachineID) (Machine, error) {
	path := filepath.Join(k.dir, dirMachines, string(id)+".seed")
	kp, err := readAccountSeed(path)
	if missing(err) {
		err = damaged(path, "the account of machine "+string(id)+" is missing")
	}
	if own, ok := errors.AsType[*domain.Error](err); ok && own.Kind == domain.KindIntegrity {
		own.Next = "restore this file from a backup of the hub's folder; else: tensorturn machine revoke " + string(id) + ", and join the machine anew with another folder"
	}
	if err != nil {
		return Machine{}, err
	}
	return Machine{ID: id, Account: public(kp), account: kp}, nil
}
