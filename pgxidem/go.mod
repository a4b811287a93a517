module github.com/idem-go/idem/pgxidem

go 1.26.0

require (
	github.com/idem-go/idem v0.0.0
	github.com/idem-go/idem/outbox v0.0.0
	github.com/idem-go/idem/rowguard v0.0.0
	github.com/jackc/pgx/v5 v5.12.0
	github.com/stretchr/testify v1.12.1
	go.uber.org/goleak v1.3.0
	gorm.io/driver/postgres v1.6.3
	gorm.io/gorm v1.31.2
)

require (
	github.com/idem-go/idem/core/store/sqlstore v0.0.0
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/jinzhu/inflection v1.0.0 // indirect
	github.com/jinzhu/now v1.1.5 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/text v0.41.0 // indirect
)

replace (
	github.com/idem-go/idem => ../
	github.com/idem-go/idem/amqpidem => ../amqpidem
	github.com/idem-go/idem/outbox => ../outbox
	github.com/idem-go/idem/rowguard => ../rowguard
)

replace github.com/idem-go/idem/core/store/sqlstore => ../core/store/sqlstore
