package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"atys.dev/atys/internal/auth"
	"atys.dev/atys/internal/relay"
	"atys.dev/atys/internal/remote"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

type relayFlags struct {
	clientFlags
	logFlags
	door    listenFlags
	name    string
	address string
	labels  map[string]string
	keep    []string
}

func relayCommand() *cobra.Command {
	var f relayFlags
	c := &cobra.Command{
		Use:   "relay --server URL [flags]",
		Short: "Pass on to a server what the agents of a place ship",
		Long: `relay puts the windows of many agents under one table of stacks and sends them
to the server, which has the agents of the relay's group ship to it for as long
as it is there. Agents may also name it as their server: it passes on what they
ask. It acknowledges only what the server has, and keeps nothing: one that ends
loses nothing. Its token has the role relay, and it passes on windows of its
own tenant alone.`,
		Example: `  atys token --tokens /etc/atys/tokens --role relay -o relay.token
  atys relay --server https://10.0.0.5:4300 --token-file relay.token --listen :4310 --tokens tokens --tls-cert relay.pem --tls-key relay.key --label zone=a`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return f.run(c.Context(), func(ctx context.Context, log *slog.Logger) error { return runRelay(ctx, f, log) })
		},
	}
	f.clientFlags.add(c)
	f.logFlags.add(c)
	flags := c.Flags()
	flags.Lookup("tls-cert").Usage = "certificate to answer agents and to ask the server with; else $" + certVariable
	flags.StringVar(&f.door.listen, "listen", "127.0.0.1:4310", "address to answer agents at; port 0 takes a free one")
	flags.StringVar(&f.door.tokens, "tokens", "", "file of tokens that may ask, as the server's")
	flags.StringVar(&f.door.clientCA, "tls-client-ca", "", "authorities whose clients' certificates count, as for the server")
	f.door.addRate(flags, "")
	flags.StringVar(&f.name, "name", "", "what the relay is called; else its host name")
	flags.StringVar(&f.address, "address", "", "address at which agents reach it, such as https://10.0.0.7:4310; else what --listen says, or the host name")
	flags.StringToStringVar(&f.labels, "label", nil, "label of the relay, such as zone=a; the server groups by one")
	flags.StringSliceVar(&f.keep, "merge", nil, "add windows of one time up, and keep these of their labels, such as service,zone; what threads and instances did is then not known")
	_ = c.MarkFlagFilename("tokens")
	_ = c.MarkFlagFilename("tls-client-ca")
	return c
}

func runRelay(ctx context.Context, f relayFlags, log *slog.Logger) (err error) {
	if f.server == "" && os.Getenv(serverVariable) == "" {
		return &usageError{errors.New("--server: say whom to pass windows on to, such as https://10.0.0.5:4300")}
	}
	if err := wire.CheckLabels(f.labels); err != nil {
		return &usageError{fmt.Errorf("--label: %w", err)}
	}
	if len(f.keep) > 0 && !slices.Contains(f.keep, store.ServiceLabel) {
		return &usageError{fmt.Errorf("--merge %s: %s has to be among the labels that are kept", strings.Join(f.keep, ","), store.ServiceLabel)}
	}
	client, upstream, err := f.client()
	if err != nil {
		return err
	}
	f.door.plaintext = f.plaintext
	f.door.cert, f.door.key = cmp.Or(f.cert, os.Getenv(certVariable)), cmp.Or(f.key, os.Getenv(keyVariable))
	d, err := f.door.open("--listen", log)
	if err != nil {
		return err
	}
	defer d.listener.Close() // who serves has closed it already
	offer, err := f.offer(d.listener.Addr(), upstream)
	if err != nil {
		return err
	}
	leave, err := d.admitOperator(relay.ItsOwn, auth.NewToken())
	if err != nil {
		return err
	}
	defer leave()
	r := relay.New(relay.Options{Offer: offer, Upstream: remote.New(client, upstream), Keep: f.keep, Now: newClock().now, Log: log})
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	shut := d.answer(r.Handler(relay.Admission{Tokens: d.tokens, Limit: d.limit}, newRegistry(r), inside()), log, cancel)
	f.begun(log, fmt.Sprintf("%s takes windows at %s for %s", offer.GetName(), offer.GetAddress(), upstream), "name", offer.GetName(), "address", offer.GetAddress(), "server", upstream)
	r.Run(ctx)
	return shut()
}

// offer is how the relay presents itself to a server.
func (f *relayFlags) offer(at net.Addr, server string) (*atysv1.OfferRequest, error) {
	host, err := os.Hostname()
	if err != nil && (f.name == "" || f.address == "") {
		return nil, fmt.Errorf("name this relay: %w (--name and --address do)", err)
	}
	if f.address == "" {
		u, err := url.Parse(f.door.address(at))
		if err != nil {
			return nil, err
		}
		if ip := net.ParseIP(u.Hostname()); ip != nil && ip.IsUnspecified() { // it answers at all addresses
			u.Host = net.JoinHostPort(host, u.Port())
		}
		f.address = u.String()
	} else if f.address = withScheme(f.address); wire.CheckAddress(f.address) != nil {
		err := wire.CheckAddress(f.address)
		return nil, &usageError{fmt.Errorf("--address %w", err)}
	}
	if leadsHome(f.address) && !leadsHome(server) {
		return nil, &usageError{fmt.Errorf("agents would be told to ship to %s, which is each machine's own: they would show their token to whoever listens there; "+
			"give --listen an address that they reach, such as :4310, or --address one that leads here", f.address)}
	}
	return &atysv1.OfferRequest{Name: cmp.Or(f.name, host), Address: f.address, Labels: f.labels, Version: version()}, nil
}

// leadsHome tells whether an address leads whoever asks there to their own machine.
func leadsHome(address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && (ip.IsLoopback() || ip.IsUnspecified())
}
