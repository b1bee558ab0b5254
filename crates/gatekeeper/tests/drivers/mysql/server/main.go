// A server that logs clients in as MySQL 8 does, by caching_sha2_password: the fast way with a hash that it keeps
// of an earlier login, the full way with the password itself. It takes that over TLS, or as "rsa" encrypted with its
// RSA key.
//
// The protocol, the proof and the SQL are those of Dolt's server (go-mysql-server, and its fork of Vitess), which
// was written apart from this project. Three things are added. Vitess leaves the store of hashes to the program, and
// go-mysql-server has none. Neither tells changes of a session, which the gate demands; so the greeting says that
// they could be told. And Vitess has no RSA, which is Go's own here.
//
// Arguments: the user, the password, "tls" or "rsa", and the address to listen at. The program writes its port, then a line for each proof:
// "fast USER" or "full USER". It ends with its input.
package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"sync"
	"time"

	sqle "github.com/dolthub/go-mysql-server"
	"github.com/dolthub/go-mysql-server/memory"
	"github.com/dolthub/go-mysql-server/server"
	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/mysql_db"
	"github.com/dolthub/go-mysql-server/sql/plan"
	"github.com/dolthub/vitess/go/mysql"
)

// The bit of CLIENT_SESSION_TRACK within the greeting's upper capabilities.
const sessionTrack = 1 << (23 - 16)

// The only account. An empty password is that of an account without one.
type account struct {
	user, password string
	lock           sync.Mutex
	// The server has seen the password, and keeps its hash.
	isKnown bool
}

func (a *account) getter(remote net.Addr) mysql.Getter {
	host, _, _ := net.SplitHostPort(remote.String())
	return sql.MysqlConnectionUser{User: a.user, Host: host}
}

func (a *account) HandleUser(string, net.Addr) bool { return true }

// UserEntryWithCacheHash is the fast way.
func (a *account) UserEntryWithCacheHash(_ []*x509.Certificate, salt []byte, user string, proof []byte, remote net.Addr) (mysql.Getter, mysql.CacheState, error) {
	a.lock.Lock()
	defer a.lock.Unlock()
	if user != a.user || !a.isKnown {
		return nil, mysql.AuthNeedMoreData, nil
	}
	if !bytes.Equal(proof, mysql.ScrambleCachingSha2Password(salt, []byte(a.password))) {
		return nil, mysql.AuthNeedMoreData, nil
	}
	fmt.Println("fast", user)
	return a.getter(remote), mysql.AuthAccepted, nil
}

// UserEntryWithPassword is the full way.
func (a *account) UserEntryWithPassword(_ []*x509.Certificate, user, password string, remote net.Addr) (mysql.Getter, error) {
	a.lock.Lock()
	defer a.lock.Unlock()
	if user != a.user || password != a.password {
		return nil, mysql.NewSQLError(mysql.ERAccessDeniedError, mysql.SSAccessDeniedError, "Access denied for user '%v'", user)
	}
	a.isKnown = true
	fmt.Println("full", user)
	return a.getter(remote), nil
}

// Validator, method and default in one.
type authentication struct{ methods []mysql.AuthMethod }

func (a authentication) AuthMethods() []mysql.AuthMethod { return a.methods }

func (a authentication) DefaultAuthMethodDescription() mysql.AuthMethodDescription {
	return mysql.CachingSha2Password
}

// A connection whose first packet, the greeting, says that changes of a session could be told. Vitess doesn't count
// the packets of an exchange by RSA, so all numbers behind them are shifted up to the next command.
type greeting struct {
	net.Conn
	isOver bool
	// What has been read of the present packet's header, and what is left of its payload.
	header []byte
	left   int
	// The number of the packet that was read last.
	last, shift byte
}

func (g *greeting) Write(written []byte) (int, error) {
	// A packet's header is written by itself.
	if len(written) == 4 && (!g.isOver || g.shift > 0) {
		return g.Conn.Write([]byte{written[0], written[1], written[2], written[3] + g.shift})
	}
	if g.isOver {
		return g.Conn.Write(written)
	}
	g.isOver = true
	// The protocol's version, the server's version up to its NUL, the connection's id, eight bytes of the scramble, a
	// filler, the lower capabilities, the character set, the status.
	version := bytes.IndexByte(written[1:], 0)
	upper := 1 + version + 1 + 4 + 8 + 1 + 2 + 1 + 2
	changed := bytes.Clone(written)
	changed[upper] |= sessionTrack
	return g.Conn.Write(changed)
}

func (g *greeting) Read(into []byte) (int, error) {
	count, err := g.Conn.Read(into)
	for at := 0; at < count; {
		if g.left > 0 {
			passed := min(g.left, count-at)
			g.left -= passed
			at += passed
			continue
		}
		g.header = append(g.header, into[at])
		if len(g.header) == 4 {
			g.last = into[at]
			if g.last == 0 {
				g.shift = 0
			}
			into[at] -= g.shift
			g.left = int(g.header[0]) | int(g.header[1])<<8 | int(g.header[2])<<16
			g.header = nil
		}
		at++
	}
	return count, err
}

// Says something more within a login.
func (g *greeting) say(data []byte) error {
	g.shift++
	length := len(data) + 1
	_, err := g.Conn.Write(append([]byte{byte(length), byte(length >> 8), 0, g.last + 1, mysql.AuthMoreDataPacket}, data...))
	return err
}

// A method that takes the password without TLS, encrypted.
type byRSA struct {
	mysql.AuthMethod
	of  *account
	key *rsa.PrivateKey
}

func (b byRSA) HandleUser(*mysql.Conn, string) bool { return true }

func (b byRSA) HandleAuthPluginData(c *mysql.Conn, user string, ours, theirs []byte, remote net.Addr) (mysql.Getter, error) {
	salt := ours[:len(ours)-1]
	getter, state, err := b.of.UserEntryWithCacheHash(nil, salt, user, theirs, remote)
	connection := c.Conn.(*greeting)
	if err != nil {
		return nil, err
	}
	if state == mysql.AuthAccepted {
		must(connection.say([]byte{mysql.CachingSha2FastAuth}))
		return getter, nil
	}
	must(connection.say([]byte{mysql.CachingSha2FullAuth}))
	asked, err := c.ReadPacket(context.Background())
	if err != nil || !bytes.Equal(asked, []byte{2}) {
		return nil, fmt.Errorf("the key wasn't asked for: %v %v", asked, err)
	}
	der, err := x509.MarshalPKIXPublicKey(b.key.Public())
	must(err)
	must(connection.say(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})))
	sent, err := c.ReadPacket(context.Background())
	if err != nil {
		return nil, err
	}
	password, err := rsa.DecryptOAEP(sha1.New(), nil, b.key, sent, nil)
	if err != nil || len(password) == 0 {
		return nil, fmt.Errorf("the password can't be decrypted: %w", err)
	}
	for at := range password {
		password[at] ^= salt[at%len(salt)]
	}
	return b.of.UserEntryWithPassword(nil, user, string(password[:len(password)-1]), remote)
}

type greeter struct{ net.Listener }

func (g greeter) Accept() (net.Conn, error) {
	connection, err := g.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &greeting{Conn: connection}, nil
}

// go-mysql-server fails where a connection is reset before its first query.
type resetter struct{ mysql.Handler }

func (resetter) ComResetConnection(*mysql.Conn) error { return nil }

// Has mysql.user tell of the account what MySQL 8 would. Logins are still as above.
func (a *account) tell(engine *sqle.Engine) {
	kept, err := plan.NewCachingSha2PasswordAuthentication(a.password).AuthString()
	must(err)
	privileges := mysql_db.NewPrivilegeSet()
	privileges.AddGlobalStatic(sql.PrivilegeType_Select)
	accounts := engine.Analyzer.Catalog.MySQLDb
	accounts.SetEnabled(true)
	editor := accounts.Editor()
	defer editor.Close()
	editor.PutUser(&mysql_db.User{User: a.user, Host: "%", PrivilegeSet: privileges, Plugin: "caching_sha2_password", AuthString: kept})
}

// A certificate of nobody's.
func certificate() tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	template := x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, key.Public(), key)
	must(err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	must(err)
	of := &account{user: os.Args[1], password: os.Args[2]}
	listener, err := net.Listen("tcp", net.JoinHostPort(os.Args[4], "0"))
	must(err)
	provider := memory.NewDBProvider(memory.NewDatabase("witness"))
	config := server.Config{
		Listener: greeter{listener},
		ProtocolListenerFactory: func(given server.Config, config mysql.ListenerConfig, events server.ServerEventListener) (server.ProtocolListener, error) {
			method := mysql.NewSha2CachingAuthMethod(of, of, of)
			if os.Args[3] == "rsa" {
				method = byRSA{method, of, key}
			}
			config.AuthServer = authentication{methods: []mysql.AuthMethod{method}}
			return server.MySQLProtocolListenerFactory(given, config, events)
		},
	}
	if os.Args[3] == "tls" {
		config.TLSConfig = &tls.Config{Certificates: []tls.Certificate{certificate()}}
	}
	sessions := memory.NewSessionBuilder(provider)
	wrap := func(handler mysql.Handler) (mysql.Handler, error) { return resetter{handler}, nil }
	engine := sqle.NewDefault(provider)
	of.tell(engine)
	served, err := server.NewServerWithHandler(config, engine, sql.NewContext, sessions, nil, wrap)
	must(err)
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	must(served.Start())
}
