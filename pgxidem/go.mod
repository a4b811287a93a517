module github.com/idem-go/idem/pgxidem

go 1.26.0

require (
	github.com/idem-go/idem v0.0.0
	github.com/idem-go/idem/outbox v0.0.0
	github.com/idem-go/idem/rowguard v0.0.0
	github.com/jackc/pgx/v5 v5.9.2
	github.com/stretchr/testify v1.11.1
	go.uber.org/goleak v1.3.0
	gorm.io/driver/postgres v1.6.0
	gorm.io/gorm v1.30.2
)

require github.com/idem-go/idem/core/store/sqlstore v0.0.0

require (
	github.com/davecgh/go-spew v1.1.1 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.2 // indirect
	github.com/jinzhu/inflection v1.0.0 // indirect
	github.com/jinzhu/now v1.1.5 // indirect
	github.com/pmezard/go-difflib v1.0.0 // indirect
	golang.org/x/sync v0.22.0 // indirect
	golang.org/x/text v0.41.0 // indirect
	gopkg.in/yaml.v3 v3.0.1 // indirect
)

replace (
	github.com/idem-go/idem => ../
	github.com/idem-go/idem/amqpidem => ../amqpidem
	github.com/idem-go/idem/outbox => ../outbox
	github.com/idem-go/idem/rowguard => ../rowguard
)

replace github.com/idem-go/idem/core/store/sqlstore => ../core/store/sqlstore
