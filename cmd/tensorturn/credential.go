package main

import (
	"github.com/spf13/cobra"

	"tensorturn/broker/identity"
)

func credentialCommand(a *app) *cobra.Command {
	return group("credential", "credentials for other programs", credentialExport(a), credentialCreate(a), credentialList(a), credentialRevoke(a))
}

func credentialExport(a *app) *cobra.Command {
	var dir, listen string
	c := &cobra.Command{Use: "export OUT-DIR", Short: "write leafnode configuration and credential for a stock nats-server", Args: args("OUT-DIR"),
		Long: "Writes leaf.conf, leaf.creds and ca.pem of this machine. A stock nats-server started with exactly these files joins\n" +
			"the hub as this machine's leafnode: nats-server -c leaf.conf. The credential lives as long as the agent's: export again after 24 h.",
		RunE: func(c *cobra.Command, got []string) error {
			keys, err := loadAgent(dir)
			if err != nil {
				return err
			}
			err = identity.WriteStockLeaf(got[0], identity.StockLeaf{Hub: keys.Hub, Machine: string(keys.Machine), Credential: keys.Credential,
				User: keys.Key(), CA: keys.CA, Listen: listen})
			if err != nil {
				return err
			}
			if a.json {
				return a.object(map[string]string{"dir": got[0], "config": identity.StockConfig, "credential": identity.StockCreds, "ca": identity.StockCA})
			}
			a.say("wrote %s, %s and %s; in %s run: nats-server -c %s", identity.StockConfig, identity.StockCreds, identity.StockCA, got[0], identity.StockConfig)
			return nil
		}}
	c.Flags().StringVar(&dir, "dir", agentDir(), "folder of the agent")
	c.Flags().StringVar(&listen, "listen", "", "host:port where the stock server serves local clients (127.0.0.1:4222 when empty)")
	return c
}
