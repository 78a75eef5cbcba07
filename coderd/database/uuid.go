package database

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// registerTypes registers types on a new connection that pgx would otherwise have to discover for every value. pgx
// assumes that only database/sql can convert a uuid.UUID to text and back, which costs more than the rest of reading a
// row of ids.
func registerTypes(_ context.Context, conn *pgx.Conn) error {
	types := conn.TypeMap()
	id := &pgtype.Type{Name: "uuid", OID: pgtype.UUIDOID, Codec: uuidCodec{}}
	types.RegisterType(id)
	types.RegisterType(&pgtype.Type{Name: "_uuid", OID: pgtype.UUIDArrayOID, Codec: &pgtype.ArrayCodec{
		ElementType: id,
	}})
	return nil
}

// uuidCodec encodes and decodes uuid.UUID in PostgreSQL's binary format, and leaves everything else to pgx.
type uuidCodec struct{ pgtype.UUIDCodec }

func (c uuidCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if _, ok := value.(uuid.UUID); ok && format == pgtype.BinaryFormatCode {
		return encodeUUID{}
	}
	return c.UUIDCodec.PlanEncode(m, oid, format, value)
}

func (c uuidCodec) PlanScan(m *pgtype.Map, oid uint32, format int16, target any) pgtype.ScanPlan {
	if _, ok := target.(*uuid.UUID); ok && format == pgtype.BinaryFormatCode {
		return scanUUID{}
	}
	return c.UUIDCodec.PlanScan(m, oid, format, target)
}

type encodeUUID struct{}

func (encodeUUID) Encode(value any, buf []byte) ([]byte, error) {
	id := value.(uuid.UUID)
	return append(buf, id[:]...), nil
}

type scanUUID struct{}

var errUUID = errors.New("not a UUID of 16 bytes")

func (scanUUID) Scan(src []byte, target any) error {
	id := target.(*uuid.UUID)
	if src == nil { // NULL, handled as in uuid.UUID's own Scan
		*id = uuid.Nil
		return nil
	}
	if len(src) != len(id) {
		return errUUID
	}
	copy(id[:], src)
	return nil
}
