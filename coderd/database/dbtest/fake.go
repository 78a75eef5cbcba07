package dbtest

import (
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgtype"
)

// OldPostgres returns the URL of a server that speaks PostgreSQL's protocol and says that it is PostgreSQL 9.6. It does
// not offer TLS.
func OldPostgres(t testing.TB) string {
	t.Helper()
	return serve(t, answerAsOldPostgres) + "?sslmode=disable"
}

// RefusingPostgres returns the URL of a server that refuses every connection with this error.
func RefusingPostgres(t testing.TB, code, message string) string {
	t.Helper()
	return serve(t, func(conn net.Conn) {
		backend := pgproto3.NewBackend(conn, conn)
		if _, err := backend.ReceiveStartupMessage(); err == nil {
			backend.Send(&pgproto3.ErrorResponse{
				Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: code, Message: message,
			})
			_ = backend.Flush() // a client that is gone needs no answer
		}
	}) + "?sslmode=disable"
}

// UntrustedPostgres returns the URL of a server whose certificate was issued by no known authority, and of which the
// URL requires a known one.
func UntrustedPostgres(t testing.TB) string {
	t.Helper()
	holder := httptest.NewTLSServer(nil) // has such a certificate
	t.Cleanup(holder.Close)
	return serve(t, func(conn net.Conn) {
		if _, err := pgproto3.NewBackend(conn, conn).ReceiveStartupMessage(); err == nil {
			if _, err := conn.Write([]byte("S")); err == nil {
				_ = tls.Server(conn, &tls.Config{
					Certificates: holder.TLS.Certificates,
				}).Handshake() // the client ends it
			}
		}
	}) + "?sslmode=verify-full"
}

// serve returns the URL of a listener whose connections are answered by a function.
func serve(t testing.TB, answer func(net.Conn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer conn.Close()
				answer(conn)
			})
		}
	})
	t.Cleanup(func() { listener.Close(); conns.Wait() })
	return "postgres://coder:secret@" + listener.Addr().String() + "/coder"
}

// answerAsOldPostgres grants every lock and answers every other query with the number of PostgreSQL 9.6.24, until the
// client ends.
func answerAsOldPostgres(conn net.Conn) {
	backend := pgproto3.NewBackend(conn, conn)
	if first, err := backend.ReceiveStartupMessage(); err != nil {
		return
	} else if _, ok := first.(*pgproto3.SSLRequest); ok {
		_, _ = conn.Write([]byte("N")) // the client connects again if it accepts a connection without TLS
		return
	}
	number := pgproto3.FieldDescription{
		Name: []byte("version"), DataTypeOID: pgtype.Int4OID, DataTypeSize: 4, TypeModifier: -1,
	}
	granted := pgproto3.FieldDescription{
		Name: []byte("granted"), DataTypeOID: pgtype.BoolOID, DataTypeSize: 1, TypeModifier: -1,
	}
	column, value := number, []byte(nil) // of the parsed query's answer
	var parameters []uint32              // types of the parsed query's parameters
	backend.Send(&pgproto3.AuthenticationOk{})
	backend.Send(&pgproto3.ParameterStatus{Name: "server_version", Value: "9.6.24"})
	backend.Send(&pgproto3.BackendKeyData{
		ProcessID: 90624, SecretKey: make([]byte, 4),
	}) // which is what it answers when asked
	backend.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	for backend.Flush() == nil {
		message, err := backend.Receive()
		if err != nil {
			return
		}
		switch m := message.(type) {
		case *pgproto3.Parse:
			parameters, column, value = nil, number, binary.BigEndian.AppendUint32(nil, 90624)
			if strings.Contains(m.Query, "advisory_lock") {
				column, value = granted, []byte{1}
			}
			for strings.Contains(m.Query, fmt.Sprintf("$%d", len(parameters)+1)) {
				parameters = append(parameters, pgtype.Int8OID)
			}
			backend.Send(&pgproto3.ParseComplete{})
		case *pgproto3.Describe:
			if m.ObjectType == 'S' {
				backend.Send(&pgproto3.ParameterDescription{ParameterOIDs: parameters})
			}
			backend.Send(&pgproto3.RowDescription{Fields: []pgproto3.FieldDescription{column}})
		case *pgproto3.Bind:
			if len(m.ResultFormatCodes) == 0 || m.ResultFormatCodes[0] == pgtype.TextFormatCode {
				value = []byte("90624")
			}
			backend.Send(&pgproto3.BindComplete{})
		case *pgproto3.Execute:
			backend.Send(&pgproto3.DataRow{Values: [][]byte{value}})
			backend.Send(&pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")})
		case *pgproto3.Sync:
			backend.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
		}
	}
}
