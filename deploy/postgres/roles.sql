-- The roles that Strandline connects as, for psql, once per database, as a superuser:
--
--   OWNER_PASSWORD=… APP_PASSWORD=… psql --file deploy/postgres/roles.sql "$SUPERUSERS_URL"
--
-- strandline_owner runs `strandline migrate`: it owns the schema and its tables. strandline_app runs everything
-- else, producers, workers and the command line: it reads and writes rows and can change no table. Neither is a
-- superuser. No other role keeps a right on the database: another application of it needs
-- `GRANT CONNECT ON DATABASE … TO …`. Passwords come from the environment, since arguments show in `ps`, or from the files that
-- OWNER_PASSWORD_FILE and APP_PASSWORD_FILE name.
\set ON_ERROR_STOP on
\getenv owner_password OWNER_PASSWORD
\getenv app_password APP_PASSWORD
\getenv owner_file OWNER_PASSWORD_FILE
\getenv app_file APP_PASSWORD_FILE
\if :{?owner_file}
\set owner_password `cat "$OWNER_PASSWORD_FILE"`
\endif
\if :{?app_file}
\set app_password `cat "$APP_PASSWORD_FILE"`
\endif

-- Statements with a password are kept out of the server's log, and out of pg_stat_statements and pgaudit.
SET log_statement = 'none';
SET log_min_error_statement = 'panic';
SET log_min_duration_statement = -1;
SET log_min_duration_sample = -1;
SET log_transaction_sample_rate = 0;
SET pg_stat_statements.track = 'none';
SET pgaudit.log = 'none';

BEGIN;
-- To make it, a superuser is needed.
CREATE EXTENSION IF NOT EXISTS vector;

-- Roles belong to all databases of a cluster: for a second one they are there.
SELECT format('CREATE ROLE %I', missing.name)
FROM (VALUES ('strandline_owner'), ('strandline_app')) AS missing (name)
WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = missing.name) \gexec
ALTER ROLE strandline_owner LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE PASSWORD :'owner_password';
ALTER ROLE strandline_app LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE PASSWORD :'app_password';

REVOKE ALL ON DATABASE :"DBNAME" FROM PUBLIC;
REVOKE CREATE ON SCHEMA public FROM PUBLIC;
GRANT CONNECT, CREATE, TEMPORARY ON DATABASE :"DBNAME" TO strandline_owner;
-- An import writes its lines to a temporary table first.
GRANT CONNECT, TEMPORARY ON DATABASE :"DBNAME" TO strandline_app;

-- Grants on everything that the owner creates from now on: this release's tables and those of later releases.
ALTER DEFAULT PRIVILEGES FOR ROLE strandline_owner GRANT USAGE ON SCHEMAS TO strandline_app;
ALTER DEFAULT PRIVILEGES FOR ROLE strandline_owner GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO strandline_app;
-- SELECT on sequences is for pg_dump.
ALTER DEFAULT PRIVILEGES FOR ROLE strandline_owner GRANT USAGE, SELECT ON SEQUENCES TO strandline_app;
ALTER DEFAULT PRIVILEGES FOR ROLE strandline_owner GRANT EXECUTE ON FUNCTIONS TO strandline_app;

-- Of pgvector, in any schema: a hardened server withholds them from PUBLIC.
SELECT format('GRANT USAGE ON SCHEMA %s TO strandline_owner, strandline_app', extnamespace::regnamespace)
FROM pg_extension WHERE extname = 'vector' \gexec
SELECT format('GRANT USAGE ON TYPE %s TO strandline_owner', d.objid::regtype)
FROM pg_depend d JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
JOIN pg_type t ON t.oid = d.objid AND t.typcategory <> 'A'
WHERE e.extname = 'vector' AND d.classid = 'pg_type'::regclass AND d.deptype = 'e' \gexec
SELECT format('GRANT EXECUTE ON ROUTINE %s TO strandline_owner, strandline_app', d.objid::regprocedure)
FROM pg_depend d JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
WHERE e.extname = 'vector' AND d.classid = 'pg_proc'::regclass AND d.deptype = 'e' \gexec
COMMIT;
