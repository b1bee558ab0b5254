// Hibernate: the schema, batches of entities, queries with comments, scrolling, locks, versions, savepoints, isolation.
//
// Both databases' programs have these checks. Each hands in what differs by its database.

import jakarta.persistence.CascadeType;
import jakarta.persistence.Column;
import jakarta.persistence.Entity;
import jakarta.persistence.GeneratedValue;
import jakarta.persistence.GenerationType;
import jakarta.persistence.Id;
import jakarta.persistence.LockModeType;
import jakarta.persistence.ManyToOne;
import jakarta.persistence.OneToMany;
import jakarta.persistence.OptimisticLockException;
import jakarta.persistence.QueryTimeoutException;
import jakarta.persistence.Table;
import jakarta.persistence.Version;
import java.sql.Connection;
import java.sql.Savepoint;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Properties;
import org.hibernate.ScrollMode;
import org.hibernate.Session;
import org.hibernate.SessionFactory;
import org.hibernate.cfg.Configuration;
import org.hibernate.exception.ConstraintViolationException;

/**
 * The checks of one database.
 *
 * @param url where it is
 * @param connection the driver's properties
 * @param doubleKey the SQLSTATE of a unique value that comes twice
 * @param isolation a query that shows the transaction's isolation level
 * @param endless a query that takes longer than the time-out
 */
record HibernateChecks(String url, Properties connection, String doubleKey, String isolation, String endless) {
    private static final int CUSTOMERS = 500;
    private static SessionFactory factory;

    @Entity(name = "Customer")
    @Table(name = "hibernate_customers")
    static class Customer {
        /** Made by the table, so that each INSERT tells it. An order's id comes from a sequence, so that INSERTs are batched. */
        @Id
        @GeneratedValue(strategy = GenerationType.IDENTITY)
        Long id;

        @Column(unique = true)
        String name;

        @Version
        int version;

        int credit;

        @OneToMany(mappedBy = "customer", cascade = CascadeType.ALL)
        List<Order> orders = new ArrayList<>();
    }

    @Entity(name = "Order")
    @Table(name = "hibernate_orders")
    static class Order {
        @Id
        @GeneratedValue
        Long id;

        int amount;

        @ManyToOne
        Customer customer;
    }

    void register() {
        Harness.check("Hibernate: a schema is made, and entities are written by batches", this::schema);
        Harness.check("Hibernate: queries of many sessions", HibernateChecks::queries);
        Harness.check("Hibernate: results are scrolled and streamed", HibernateChecks::scroll);
        Harness.check("Hibernate: a row changed by another session is noticed", HibernateChecks::versions);
        Harness.check("Hibernate: rows are locked, by many threads", HibernateChecks::locks);
        Harness.check("Hibernate: a savepoint undoes what breaks a constraint", this::savepoints);
        Harness.check("Hibernate: isolation, read-only sessions, and time-outs", this::checkIsolation);
    }

    private void schema() {
        java.util.logging.Logger.getLogger("org.hibernate").setLevel(java.util.logging.Level.SEVERE);
        Configuration configuration = new Configuration().addAnnotatedClass(Customer.class).addAnnotatedClass(Order.class);
        configuration.setProperty("jakarta.persistence.jdbc.url", url);
        connection.forEach((name, value) -> configuration.setProperty("hibernate.connection." + name, value.toString()));
        configuration.setProperty("hibernate.connection.pool_size", String.valueOf(8 * Harness.CONNECTIONS));
        configuration.setProperty("hibernate.hbm2ddl.auto", "create-drop");
        configuration.setProperty("hibernate.jdbc.batch_size", "50");
        configuration.setProperty("hibernate.use_sql_comments", "true");
        configuration.setProperty("hibernate.connection.autocommit", "false");
        factory = configuration.buildSessionFactory();
        factory.inTransaction(session -> {
            for (int number = 0; number < CUSTOMERS; number++) {
                Customer customer = new Customer();
                customer.name = "customer " + number;
                for (int index = 0; index < 3; index++) {
                    Order order = new Order();
                    order.amount = index;
                    order.customer = customer;
                    customer.orders.add(order);
                }
                session.persist(customer);
            }
        });
        long count = factory.fromSession(session ->
            session.createSelectionQuery("select count(*) from Order", Long.class).getSingleResult());
        Harness.expect("orders", count, 3L * CUSTOMERS);
        long last = factory.fromSession(session ->
            session.createSelectionQuery("select max(id) from Customer", Long.class).getSingleResult());
        Harness.expect("the last id", last, (long) CUSTOMERS);
    }

    private static Customer named(Session session, String name) {
        return session.createSelectionQuery("from Customer where name = :name", Customer.class)
            .setParameter("name", name).getSingleResult();
    }

    private static void queries() throws Exception {
        Harness.together(4 * Harness.CONNECTIONS, seed -> () -> {
            for (int round = 0; round < 10; round++) {
                String name = "customer " + (seed * 10 + round);
                factory.inTransaction(session -> {
                    Customer customer = named(session, name);
                    Harness.expect("its orders", customer.orders.size(), 3);
                    customer.credit += 1;
                });
                int credit = factory.fromSession(session -> named(session, name).credit);
                Harness.expect("its credit", credit, 1);
            }
        });
    }

    private static void scroll() {
        factory.inTransaction(session -> {
            var query = session.createSelectionQuery("from Order order by id", Order.class).setFetchSize(50);
            int count = 0;
            try (var rows = query.scroll(ScrollMode.FORWARD_ONLY)) {
                while (rows.next()) {
                    count++;
                }
            }
            Harness.expect("scrolled", count, 3 * CUSTOMERS);
            try (var stream = query.getResultStream()) {
                Harness.expect("streamed", stream.limit(120).count(), 120L);
            }
        });
    }

    private static void versions() {
        Session mine = factory.openSession();
        mine.beginTransaction();
        Customer loaded = named(mine, "customer 499");
        mine.getTransaction().commit();
        factory.inTransaction(session -> named(session, "customer 499").credit = 7);
        mine.beginTransaction();
        loaded.credit = 8;
        try {
            mine.getTransaction().commit();
            throw new AssertionError("a stale row was written");
        } catch (OptimisticLockException | jakarta.persistence.RollbackException expected) {
            mine.close();
        }
        int credit = factory.fromSession(session -> named(session, "customer 499").credit);
        Harness.expect("the credit", credit, 7);
    }

    private static void locks() throws Exception {
        int threads = 4 * Harness.CONNECTIONS;
        factory.inTransaction(session -> named(session, "customer 498").credit = 0);
        Harness.together(threads, seed -> () -> {
            for (int step = 0; step < 5; step++) {
                factory.inTransaction(session -> session
                    .createSelectionQuery("from Customer where name = 'customer 498'", Customer.class)
                    .setLockMode(LockModeType.PESSIMISTIC_WRITE).getSingleResult().credit += 1);
            }
        });
        int credit = factory.fromSession(session -> named(session, "customer 498").credit);
        Harness.expect("the credit", credit, 5 * threads);
    }

    private void savepoints() {
        factory.inTransaction(session -> {
            session.doWork(connection -> {
                for (int round = 0; round < Harness.CONNECTIONS; round++) {
                    Savepoint before = connection.setSavepoint();
                    try {
                        Harness.execute(connection, "INSERT INTO hibernate_customers (id, version, credit, name) VALUES (-1, 0, 0, 'customer 1')");
                        throw new AssertionError("a name twice");
                    } catch (java.sql.SQLException error) {
                        Harness.expect("the SQLSTATE", error.getSQLState(), doubleKey);
                        connection.rollback(before);
                    }
                }
            });
            session.persist(new Customer());
        });
        try {
            factory.inTransaction(session -> {
                Customer twice = new Customer();
                twice.name = "customer 1";
                session.persist(twice);
                session.flush();
            });
            throw new AssertionError("a name twice");
        } catch (ConstraintViolationException error) {
            Harness.expect("the SQLSTATE", error.getSQLState(), doubleKey);
        }
    }

    private void checkIsolation() {
        factory.inSession(session -> {
            session.doWork(jdbc -> jdbc.setTransactionIsolation(Connection.TRANSACTION_SERIALIZABLE));
            session.beginTransaction();
            String shown = session.createNativeQuery(isolation, String.class).getSingleResult();
            Harness.expect("the isolation", shown.toLowerCase(Locale.ROOT), "serializable");
            session.getTransaction().commit();
            session.doWork(jdbc -> jdbc.setTransactionIsolation(Connection.TRANSACTION_READ_COMMITTED));
            session.setDefaultReadOnly(true);
            session.beginTransaction();
            named(session, "customer 2").credit = 99;
            session.getTransaction().commit();
        });
        int credit = factory.fromSession(session -> named(session, "customer 2").credit);
        Harness.expect("the credit, unchanged", credit, 1);
        try {
            factory.inTransaction(session -> session.createNativeQuery(endless, Integer.class)
                .setTimeout(1).getSingleResult());
            throw new AssertionError("the time-out was lost");
        } catch (QueryTimeoutException expected) {
            factory.close();
        }
    }
}
