package backend

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
)

// StartRedisTLS starts a Redis server, and returns its URL, rediss://127.0.0.1:port, and what a client must trust.
func StartRedisTLS(tb testing.TB) (url string, config *tls.Config) {
	tb.Helper()
	web := httptest.NewTLSServer(nil) // whose certificate is for 127.0.0.1
	web.Close()
	key, err := x509.MarshalPKCS8PrivateKey(web.TLS.Certificates[0].PrivateKey)
	if err != nil {
		tb.Fatal(err)
	}
	dir := dataDir(tb, nil)
	write := func(name, kind string, der []byte) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			tb.Fatal(err)
		}
		return file
	}
	port := freePort(tb)
	StartRedis(tb, "--tls-port", port, "--tls-auth-clients", "no",
		"--tls-cert-file", write("cert.pem", "CERTIFICATE", web.Certificate().Raw), "--tls-key-file", write("key.pem", "PRIVATE KEY", key))
	trusted := x509.NewCertPool()
	trusted.AddCert(web.Certificate())
	return "rediss://" + net.JoinHostPort("127.0.0.1", port), &tls.Config{RootCAs: trusted, ServerName: "127.0.0.1"}
}
