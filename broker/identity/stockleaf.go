package identity

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"tensorturn/domain"
)

// Files that WriteStockLeaf leaves.
const (
	StockConfig = "leaf.conf"
	StockCreds  = "leaf.creds"
	StockCA     = "ca.pem"
)

// StockLeaf describes a leafnode that is a stock nats-server.
type StockLeaf struct {
	Hub        string        // https URL of the hub
	Machine    string        // id of the machine the credential is for
	Credential string        // user JWT
	User       nkeys.KeyPair // its key, with seed
	CA         []byte        // PEM
	Listen     string        // host:port for local clients, "" means 127.0.0.1:4222
}

// WriteStockLeaf writes configuration, credential file and CA for a stock nats-server into dir (made with 0700 if
// missing, files 0600). The file names inside are relative: start the server in dir with `nats-server -c leaf.conf`.
func WriteStockLeaf(dir string, l StockLeaf) error {
	conf, err := stockConfig(l)
	if err != nil {
		return err
	}
	seed, err := l.User.Seed()
	if err != nil {
		return fmt.Errorf("export leafnode credential: %w", err)
	}
	creds, err := jwt.FormatUserConfig(l.Credential, seed)
	if err != nil {
		return domain.Invalid("export leafnode credential", err.Error(), "")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return domain.Unavailable("export leafnode credential", "the directory cannot be made", "choose another", err)
	}
	return errors.Join(
		writeSecret(filepath.Join(dir, StockCA), l.CA),
		writeSecret(filepath.Join(dir, StockCreds), creds),
		writeSecret(filepath.Join(dir, StockConfig), []byte(conf)))
}

func stockConfig(l StockLeaf) (string, error) {
	if err := CheckHubURL(l.Hub); err != nil {
		return "", err
	}
	if !domain.ValidID(l.Machine) {
		return "", domain.Invalid("export leafnode credential", fmt.Sprintf("%q is not a machine id", domain.Clip(l.Machine, 80)), "")
	}
	listen := l.Listen
	if listen == "" {
		listen = "127.0.0.1:4222"
	}
	if _, _, err := net.SplitHostPort(listen); err != nil || strings.ContainsAny(listen, "\"\n") {
		return "", domain.Invalid("export leafnode credential", fmt.Sprintf("%q is not host:port", domain.Clip(listen, 80)), "give --listen 127.0.0.1:4222")
	}
	leaf, err := LeafURL(l.Hub)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf(stockTemplate, l.Machine, listen, leaf, StockCreds, StockCA), nil
}

// LeafURL is where leafnodes of a hub dial: the port is always written, since nats-server's own default is another one.
func LeafURL(hub string) (string, error) {
	if err := CheckHubURL(hub); err != nil {
		return "", err
	}
	u, err := url.Parse(hub)
	if err != nil {
		return "", err
	}
	port := u.Port()
	if port == "" {
		port = "443"
	}
	return (&url.URL{Scheme: "wss", Host: net.JoinHostPort(u.Hostname(), port), Path: "/nats"}).String(), nil
}

// stockTemplate: compression off (weights do not shrink, and S2 costs nine times the memory), advertised addresses
// ignored (they are the hub's loopback), long time-outs (home links), an interval that is not everybody's.
const stockTemplate = `# A stock nats-server as a leafnode of a tensorturn hub.
# Start it in this directory: nats-server -c leaf.conf
# Local programs ask the hub on hub.sync and hear it on hub.wake.
server_name: "leaf-%s"
listen: "%s"
leafnodes {
  reconnect: "4s"
  remotes = [
    {
      urls: ["%s"]
      credentials: "%s"
      compression: off
      ignore_discovered_servers: true
      first_info_timeout: "20s"
      dial_timeout: "20s"
      tls { ca_file: "%s", timeout: 20 }
    }
  ]
}
`
