package identity

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"net/url"
	"path/filepath"

	"github.com/nats-io/nkeys"

	"tensorturn/domain"
)

// AgentKeys is what a machine keeps about itself and its hub. The nkey is made here and its seed never leaves the
// machine. All of it is one file of mode 0600, replaced in one step, so that a crash never leaves half a renewal.
type AgentKeys struct {
	Hub        string           // https URL of the hub
	Machine    domain.MachineID // empty until enrolled
	Name       string           // under which it joined; empty of those that joined before it was kept
	Credential string           // user JWT
	CA         []byte           // PEM: the only root this machine trusts for the hub
	HeadKey    []byte           // the hub's Ed25519 public key for signed heads, 32 bytes
	user       nkeys.KeyPair
}

// agentFile is the file's form.
type agentFile struct {
	Version    int              `json:"version"`
	Hub        string           `json:"hub"`
	Machine    domain.MachineID `json:"machine,omitempty"`
	Name       string           `json:"name,omitempty"`
	Seed       string           `json:"seed"`
	Credential string           `json:"credential,omitempty"`
	CA         string           `json:"ca,omitempty"`
	HeadKey    []byte           `json:"head_key,omitempty"`
	Sum        string           `json:"sum,omitempty"` // see sum; files of earlier programs have none
}

// sum is the CRC-32 of all that a machine cannot get again: a changed letter may leave valid JSON of another hub or machine.
// The credential is not in it, since it is signed and the hub gives another for a proof of the key.
func (f agentFile) sum() string {
	f.Credential, f.Sum = "", ""
	b, err := json.Marshal(f)
	domain.Assert(err == nil, "plain fields can be written as JSON")
	return fmt.Sprintf("%08x", crc32.ChecksumIEEE(b))
}

const agentFileVersion = 1

// NewAgentKeys draws a machine's key. Save it before enrolling: when the hub's answer is lost, the same key asks again
// and gets the same machine.
func NewAgentKeys(hub string) (*AgentKeys, error) {
	if err := CheckHubURL(hub); err != nil {
		return nil, err
	}
	kp, err := nkeys.CreateUser()
	if err != nil {
		return nil, fmt.Errorf("make machine key: %w", err)
	}
	return &AgentKeys{Hub: hub, user: kp}, nil
}

// Enrolled reports whether a hub has accepted this machine.
func (a *AgentKeys) Enrolled() bool { return a.Machine != "" && len(a.CA) > 0 }

// Key signs for this machine: nonces of the link, blob tokens, proofs.
func (a *AgentKeys) Key() nkeys.KeyPair { return a.user }

// NKey is the machine's public key.
func (a *AgentKeys) NKey() string { return public(a.user) }

// Save replaces the file at path.
func (a *AgentKeys) Save(path string) error {
	seed, err := a.user.Seed()
	if err != nil {
		return fmt.Errorf("save machine key: %w", err)
	}
	f := agentFile{Version: agentFileVersion, Hub: a.Hub, Machine: a.Machine, Name: a.Name, Seed: string(seed),
		Credential: a.Credential, CA: string(a.CA), HeadKey: a.HeadKey}
	f.Sum = f.sum()
	b, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return fmt.Errorf("save machine key: %w", err)
	}
	return writeSecret(path, append(b, '\n'))
}

// LoadAgentKeys reads the file at path: domain.KindNotFound when the machine has never joined, domain.KindDenied when
// others may read it, domain.KindIntegrity when it is damaged.
func LoadAgentKeys(path string) (*AgentKeys, error) {
	b, err := readSecret(path)
	if missing(err) {
		return nil, domain.NotFound("read machine key", path+" does not exist: this machine has not joined a hub",
			"make a token at the hub with: tensorturn token create; then here: tensorturn agent join URL --token T --dir "+filepath.Dir(path))
	}
	own, told := errors.AsType[*domain.Error](err)
	switch {
	case told && own.Kind == domain.KindDenied:
		return nil, err
	case told:
		return nil, damagedAgent(path, own.Why)
	case err != nil:
		return nil, damagedAgent(path, cause(err))
	}
	var f agentFile
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, damagedAgent(path, err.Error())
	}
	if f.Sum != "" && f.Sum != f.sum() {
		return nil, damagedAgent(path, "its checksum is wrong")
	}
	if f.Version != agentFileVersion {
		return nil, domain.Invalid("read machine key", fmt.Sprintf("%s has version %d, this program reads %d", path, f.Version, agentFileVersion), "use a newer tensorturn")
	}
	if p, _, err := nkeys.DecodeSeed([]byte(f.Seed)); err != nil || p != nkeys.PrefixByteUser {
		return nil, damagedAgent(path, "its seed is not a user nkey")
	}
	kp, err := nkeys.FromSeed([]byte(f.Seed))
	if err != nil {
		return nil, damagedAgent(path, "its seed cannot be used")
	}
	if err := CheckHubURL(f.Hub); err != nil {
		return nil, damagedAgent(path, err.Error())
	}
	if f.Machine != "" && !domain.ValidID(string(f.Machine)) {
		return nil, damagedAgent(path, "the machine's id")
	}
	return &AgentKeys{Hub: f.Hub, Machine: f.Machine, Name: f.Name, Credential: f.Credential, CA: []byte(f.CA), HeadKey: f.HeadKey, user: kp}, nil
}

func damagedAgent(path, why string) error {
	return domain.Integrity("read machine key", path+" is damaged: "+why, "restore it from a backup; or join again, which keeps the damaged file beside the new one: tensorturn agent join URL --token T --dir "+filepath.Dir(path))
}

// CheckHubURL refuses what cannot be a hub's address: domain.KindInvalid.
func CheckHubURL(hub string) error {
	u, err := url.Parse(hub)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "" {
		return domain.Invalid("read hub address", fmt.Sprintf("%q is not an https URL", domain.Clip(hub, 200)),
			"give it as https://hub.example.org:7443")
	}
	return nil
}
