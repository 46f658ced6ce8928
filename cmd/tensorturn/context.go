package main

import (
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/adrg/xdg"

	"tensorturn/domain"
)

// operatorContext is what the command line needs to speak to a hub: the hub writes it as operator.json (0600) into its
// directory; a copy of the file on another machine works there.
type operatorContext struct {
	URL string `json:"url"`
	Key string `json:"key"`
	CA  string `json:"ca"` // PEM

	file string // where it was read
}

// contextPath is the default place of the context: $TENSORTURN_CONTEXT, else the user's configuration folder.
func contextPath() string {
	if p := os.Getenv("TENSORTURN_CONTEXT"); p != "" {
		return p
	}
	return filepath.Join(xdg.ConfigHome, "tensorturn", "operator.json")
}

func loadContext(path string) (operatorContext, error) {
	var c operatorContext
	b, err := readSmall(path, maxContextFile)
	if err != nil {
		return c, domain.NotFound("read operator context", plainPathError(err),
			"a hub writes it into its directory when it starts (tensorturn hub start --dir DIR): give --context DIR/operator.json, or set TENSORTURN_CONTEXT to it")
	}
	if err := json.Unmarshal(b, &c); err != nil || c.URL == "" || c.Key == "" {
		return c, domain.Invalid("read operator context "+path, "it is not an operator.json", "copy the file that the hub wrote into its directory")
	}
	c.file = path
	return c, nil
}

func (c operatorContext) save(path string) error {
	b, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return writeSmall(path, append(b, '\n'))
}
